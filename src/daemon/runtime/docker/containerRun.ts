import type { Container } from "dockerode"
import { Clock, Deferred, Effect, Exit, Fiber, FiberHandle, Schedule, Scope } from "effect"
import { appendConsoleLine } from "../../console/consoleFiles.ts"
import { pidsOfContainer } from "../../host/procfs.ts"
import { killedExit, type ProcessExit, whyOf } from "../exitReason.ts"
import { INTERRUPT } from "../processConsole.ts"
import type { Launch, LaunchFailed, Run } from "../Runtime.ts"
import { type ConsoleOf, type ContainerConsole, openContainerConsole } from "./containerConsole.ts"
import { consoleClosed } from "./containerJob.ts"
import { writeContainerRecord } from "./containerRemoval.ts"
import { measure, missingProgram, removeContainer, stateOf, waitForExit } from "./containers.ts"
import { Engine, type EngineError, inspect, orDone } from "./Engine.ts"

interface PendingOptions {
  readonly making: Fiber.Fiber<Run, LaunchFailed>
  /** Reports why there is no container, before `ended` completes. */
  readonly onFailed: (error: LaunchFailed) => Effect.Effect<void>
  readonly abandon: Effect.Effect<void>
}

const noProcess: ProcessExit = { code: 127, out_of_memory: false, never_began: true }

/** Returns a run whose container is not created yet: its image may be pulled first, which can take minutes. */
export const openPendingRun = Effect.fnUntraced(function* (options: PendingOptions, scope: Scope.Scope) {
  const { abandon, making, onFailed } = options
  const began = yield* Deferred.make<number>()
  const ended = yield* Deferred.make<ProcessExit>()
  let run: Run | undefined

  const watch = Effect.gen(function* () {
    const made = yield* Fiber.await(making)
    if (Exit.isSuccess(made)) {
      run = made.value
      yield* Deferred.succeed(began, yield* Clock.currentTimeMillis)
      return yield* Deferred.succeed(ended, yield* run.ended)
    }
    const failure = made.cause.reasons.find((reason) => reason._tag === "Fail")
    if (failure !== undefined) yield* onFailed(failure.error)
    // Aborted: `kill` completes `ended` after the removal. A defect is logged, and there is no container.
    else if (made.cause.reasons.every((reason) => reason._tag === "Interrupt")) return
    else yield* Effect.logError("a container cannot be started", made.cause)
    yield* Deferred.succeed(
      ended,
      failure === undefined ? noProcess : { ...noProcess, why: whyOf(failure.error) }
    )
  })
  yield* Effect.forkIn(watch, scope)

  const kill = Effect.gen(function* () {
    yield* Fiber.interrupt(making)
    const made = yield* Fiber.await(making)
    if (Exit.isSuccess(made)) return yield* made.value.kill
    yield* abandon
    yield* Deferred.succeed(ended, killedExit)
  })
  const ofRun = (use: (made: Run) => Effect.Effect<void>) =>
    Effect.suspend(() => (run === undefined ? Effect.void : use(run)))

  return {
    beginning: { at: Deferred.await(began), isOver: () => run !== undefined },
    ended: Deferred.await(ended),
    write: (line) => Effect.suspend(() => (run === undefined ? consoleClosed : run.write(line))),
    signal: (signal) => Effect.suspend(() => (run === undefined ? kill : run.signal(signal))),
    pause: Effect.suspend(() => run?.pause ?? Effect.succeed(false)),
    resume: ofRun((made) => made.resume),
    kill,
    pids: Effect.suspend(() => run?.pids ?? Effect.succeed([])),
    usage: Effect.suspend(() => (run === undefined ? Effect.succeed(undefined) : run.usage))
  } satisfies Run
})

/** The exit code of an init process that does not find the program. */
const NOT_FOUND = 127
/** The longest time for a killed container to end before a warning, in ms. */
const KILL_WARNING = 15_000
/** The pause before a retry while the engine is down, in ms. */
const RETRY_PAUSE = 500

export type RunAt = Pick<Launch, "server_id" | "token" | "folder">

/** Copies the rest of a container's output and records its exit; the container can be removed afterwards. */
export const settle = Effect.fnUntraced(function* (at: RunAt, of: ConsoleOf, exit: ProcessExit) {
  const console = yield* openContainerConsole(of, at.folder)
  yield* copyRest(console)
  yield* record(at, of.id, exit)
})

const copyRest = (console: ContainerConsole) =>
  Effect.catch(console.catchUp, (error) => {
    const message = `console: ${error.message}`
    // The engine refuses while the container is removed; the output is not needed then.
    return "status" in error && error.status !== undefined
      ? Effect.logDebug(message)
      : Effect.logWarning(message)
  })

/** Marks the exit of a container whose program does not exist, and says so in the console. */
const neverBegan = Effect.fnUntraced(
  function* (id: string, exit: ProcessExit, folder: string) {
    const missing = exit.code === NOT_FOUND ? yield* missingProgram(id) : undefined
    if (missing === undefined) return {}
    const why = `cannot be started: ${missing.message}`
    yield* Effect.logWarning(why)
    yield* appendConsoleLine(folder, why)
    return { never_began: true, why: whyOf(missing) } as const
  },
  (self) =>
    Effect.catch(self, (error) => Effect.as(Effect.logDebug(`end of the server: ${error.message}`), {}))
)

const record = (at: RunAt, container: string, exit: ProcessExit) =>
  writeContainerRecord(at.folder, { token: at.token, container, exit }).pipe(
    Effect.catch((error) => Effect.logWarning(`the end of the container is not recorded: ${error.message}`))
  )

/** Opens the console of a container for its run: before the start, so that no output is missed. */
export const openRunConsole = Effect.fnUntraced(function* (
  of: ConsoleOf,
  folder: string,
  parent: Scope.Scope
) {
  const scope = yield* Scope.fork(parent)
  const console = yield* openContainerConsole(of, folder)
  yield* Scope.provide(console.attach, scope)
  return { console, scope }
})

/** Watches a started container, which outlives the scope. `onStuck` gets a server whose container stays. */
export const openContainerRun = Effect.fnUntraced(function* (
  at: RunAt,
  id: string,
  onStuck: (server_id: string) => void,
  { console, scope }: Effect.Success<ReturnType<typeof openRunConsole>>
) {
  const engine = yield* Engine
  const withEngine = Effect.provideService(Engine, engine)
  const ended = yield* Deferred.make<ProcessExit>()
  let killRequested = false
  const state = yield* stateOf(id)
  const terminal = state?.terminal ?? false
  const started_at = Date.parse(state?.StartedAt ?? "")

  const follow = console.follow.pipe(
    Effect.catch((error) => Effect.logDebug(`console: ${error.message}`)),
    Effect.andThen(Effect.sleep(RETRY_PAUSE)),
    Effect.forever
  )
  const watch = Effect.gen(function* () {
    const exit = yield* Effect.raceFirst(
      waitForExit(id, () => killRequested),
      Effect.as(follow, { code: 0, out_of_memory: false })
    )
    yield* copyRest(console)
    const known = { ...exit, ...(yield* neverBegan(id, exit, at.folder)) }
    yield* record(at, id, known)
    yield* Deferred.succeed(ended, known)
  })
  yield* Effect.forkIn(watch, scope)

  const warn = (error: EngineError) => Effect.logWarning(error.message)
  const isDown = (error: EngineError) => error.status === undefined
  const retrying = yield* Scope.provide(FiberHandle.make<void>(), scope)
  /** Sends once. While the engine is down, it retries in the background until the next request. */
  const send = (what: string, run: (container: Container) => Promise<unknown>) => {
    const once = engine.call(what, (docker) => run(docker.getContainer(id))).pipe(orDone)
    const later = once.pipe(
      Effect.retry({ schedule: Schedule.spaced(RETRY_PAUSE), while: isDown }),
      Effect.catch(warn)
    )
    return FiberHandle.clear(retrying).pipe(
      Effect.andThen(once),
      Effect.as(true),
      Effect.catch((error) =>
        warn(error).pipe(
          Effect.andThen(isDown(error) ? FiberHandle.run(retrying, later) : Effect.void),
          Effect.as(false)
        )
      )
    )
  }

  /** An engine refuses to pause a container that is paused. */
  const isPaused = inspect(id).pipe(
    Effect.map(({ State }) => State.Paused),
    Effect.orElseSucceed(() => false),
    withEngine
  )

  const unpaused = FiberHandle.clear(retrying).pipe(
    Effect.andThen(engine.call("unpause", (docker) => docker.getContainer(id).unpause())),
    Effect.ignore // usually it is not paused
  )

  const kill = Effect.gen(function* () {
    if (!(yield* Deferred.isDone(ended))) {
      killRequested = true
      yield* unpaused
      yield* send("kill", (container) => container.kill({ signal: "SIGKILL" }))
    }
    const over = yield* Effect.timeoutOption(Deferred.await(ended), KILL_WARNING)
    if (over._tag === "None") {
      yield* Effect.logWarning("the container did not end after a kill; it will be retried")
      return onStuck(at.server_id)
    }
    yield* Effect.catch(removeContainer(id), (error) =>
      Effect.andThen(
        warn(error),
        Effect.sync(() => onStuck(at.server_id))
      )
    )
    yield* Scope.close(scope, Exit.void)
  }).pipe(withEngine)

  const input = (text: string) =>
    Effect.flatMap(Deferred.isDone(ended), (over) => (over ? consoleClosed : console.write(text)))

  return {
    ended: Deferred.await(ended),
    write: (line) => input(`${line}\n`),
    ...(terminal ? { interrupt: input(INTERRUPT) } : {}),
    signal: (signal) => Effect.asVoid(send(`send ${signal}`, (container) => container.kill({ signal }))),
    pause: Effect.flatMap(
      send("pause", (container) => container.pause()),
      (isDone) => (isDone ? Effect.succeed(true) : isPaused)
    ),
    resume: Effect.asVoid(send("unpause", (container) => container.unpause())),
    kill,
    pids: Effect.sync(() => (state?.Pid === undefined ? [] : pidsOfContainer(state.Pid, id))),
    usage: Effect.gen(function* () {
      if (yield* Deferred.isDone(ended)) return undefined
      const found = yield* measure(id)
      if (found === undefined) return undefined
      return { ...found, uptime_ms: Math.max(0, (yield* Clock.currentTimeMillis) - started_at) }
    }).pipe(withEngine)
  } satisfies Run
})

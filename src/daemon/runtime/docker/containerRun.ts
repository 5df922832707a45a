import type { Container } from "dockerode"
import { Clock, Deferred, Effect, Exit, Schedule, Scope } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import type { Launch, Run } from "../Runtime.ts"
import { type ContainerConsole, openContainerConsole } from "./containerConsole.ts"
import { consoleClosed, makeContainerInput } from "./containerInput.ts"
import { writeContainerRecord } from "./containerRecord.ts"
import { makeContainerStats } from "./containerStats.ts"
import { removeContainer, stateOf, waitForExit } from "./containers.ts"
import { Engine, type EngineError, orDone } from "./Engine.ts"

/** How long a killed container may take to end before that is told, in ms. */
const KILL_PATIENCE = 15_000
/** Pause before what the engine was away for is done again, in ms. */
const PAUSE = 500
const retries = Schedule.max([Schedule.spaced(500), Schedule.recurs(10)])

/** What is known of a run's folder. */
export type RunAt = Pick<Launch, "server_id" | "token" | "folder">

/**
 * Notes how a container ended, with all it has printed in the console; it can be removed afterwards.
 */
export const settle = Effect.fnUntraced(function* (at: RunAt, id: string, exit: ProcessExit) {
  const console = yield* openContainerConsole(id, at.folder)
  yield* lastWords(at, console)
  yield* record(at, id, exit)
})

const lastWords = (at: RunAt, console: ContainerConsole) =>
  Effect.catch(console.catchUp, (error) => {
    const message = `console of ${at.server_id}: ${error.message}`
    // The engine refuses where the container is being removed: nobody wants its last words.
    return "status" in error && error.status !== undefined
      ? Effect.logDebug(message)
      : Effect.logWarning(message)
  })

const record = (at: RunAt, container: string, exit: ProcessExit) =>
  writeContainerRecord(at.folder, { token: at.token, container, exit }).pipe(
    Effect.catch((error) => Effect.logWarning(`end of ${at.server_id}: ${error.message}`))
  )

/**
 * Watches a container that was started, in the scope; it runs on when that closes. `onStuck`: called with a server
 * whose container could not be removed.
 */
export const openContainerRun = Effect.fnUntraced(function* (
  at: RunAt,
  id: string,
  onStuck: (server_id: string) => void,
  parent: Scope.Scope
) {
  const engine = yield* Engine
  const here = Effect.provideService(Engine, engine)
  const scope = yield* Scope.fork(parent)
  const ended = yield* Deferred.make<ProcessExit>()
  let asked = false
  const console = yield* openContainerConsole(id, at.folder)
  const write = yield* Scope.provide(makeContainerInput(id), scope)
  const figures = yield* makeContainerStats(id, scope)
  const started_at = Date.parse((yield* stateOf(id))?.StartedAt ?? "")

  const follow = console.follow.pipe(
    Effect.catch((error) => Effect.logDebug(`console of ${at.server_id}: ${error.message}`)),
    Effect.andThen(Effect.sleep(PAUSE)),
    Effect.forever
  )
  const watch = Effect.gen(function* () {
    const exit = yield* Effect.raceFirst(
      waitForExit(id, () => asked),
      Effect.as(follow, { code: 0, out_of_memory: false })
    )
    yield* lastWords(at, console)
    yield* record(at, id, exit)
    yield* Deferred.succeed(ended, exit)
  })
  yield* Effect.forkIn(watch, scope)

  const warn = (error: EngineError) => Effect.logWarning(`server ${at.server_id}: ${error.message}`)
  const isAway = (error: EngineError) => error.status === undefined
  const once = (what: string, run: (container: Container) => Promise<unknown>) =>
    engine.call(what, (docker) => run(docker.getContainer(id))).pipe(orDone)
  const tell = (what: string, run: (container: Container) => Promise<unknown>) =>
    once(what, run).pipe(Effect.retry({ schedule: retries, while: isAway }), Effect.catch(warn))
  /** The same, where the engine is away as soon as it is back: nobody waits for that. */
  const tellSoon = (what: string, run: (container: Container) => Promise<unknown>) => {
    const untilTold = once(what, run).pipe(
      Effect.retry({ schedule: Schedule.spaced(PAUSE), while: isAway }),
      Effect.catch(warn),
      Effect.forkIn(scope)
    )
    return Effect.catch(once(what, run), (error) =>
      Effect.andThen(warn(error), isAway(error) ? untilTold : Effect.void)
    ).pipe(Effect.asVoid)
  }

  const unpaused = engine
    .call("unpause", (docker) => docker.getContainer(id).unpause())
    .pipe(
      Effect.ignore // it is not paused, as a rule
    )

  const kill = Effect.gen(function* () {
    if (!(yield* Deferred.isDone(ended))) {
      asked = true
      yield* unpaused
      yield* tell("kill", (container) => container.kill({ signal: "SIGKILL" }))
    }
    const over = yield* Effect.timeoutOption(Deferred.await(ended), KILL_PATIENCE)
    if (over._tag === "None") {
      yield* Effect.logWarning(`the container of ${at.server_id} does not end; it is killed again and again`)
      return onStuck(at.server_id)
    }
    yield* Effect.catch(removeContainer(id), (error) =>
      Effect.andThen(
        Effect.logWarning(`server ${at.server_id}: ${error.message}`),
        Effect.sync(() => onStuck(at.server_id))
      )
    )
    yield* Scope.close(scope, Exit.void)
  }).pipe(here)

  const run: Run = {
    ended: Deferred.await(ended),
    write: (line) => Effect.flatMap(Deferred.isDone(ended), (over) => (over ? consoleClosed : write(line))),
    signal: (signal) => tellSoon(`send ${signal}`, (container) => container.kill({ signal })),
    pause: tell("pause", (container) => container.pause()),
    resume: unpaused,
    kill,
    usage: Effect.gen(function* () {
      if (yield* Deferred.isDone(ended)) return undefined
      const found = yield* figures
      if (found === undefined) return undefined
      const { at: _, ...usage } = found
      return { ...usage, uptime_ms: Math.max(0, (yield* Clock.currentTimeMillis) - started_at) }
    })
  }
  return run
})

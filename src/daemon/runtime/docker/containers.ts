/** The containers of this node. Every call finds them by their labels: what does not carry them is never touched. */
import { Clock, Effect, Option, Schedule, Schema } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import { KILLED } from "../processRun.ts"
import { containerName, LABEL } from "./containerOptions.ts"
import { Engine, EngineError, orDone, orGone } from "./Engine.ts"

export interface OwnContainer {
  readonly id: string
  /** Server, or job. */
  readonly name: string
  readonly run: string
  /** Address that its traffic leaves from; absent where any will do. */
  readonly outgoing?: string | undefined
}

/** Containers of a node, or of one of its servers, whatever their state. */
export const listOwn = Effect.fnUntraced(function* (node: string, name?: string) {
  const engine = yield* Engine
  const label = [`${LABEL.node}=${node}`, ...(name === undefined ? [] : [`${LABEL.server}=${name}`])]
  const found = yield* engine.call("list containers", (docker, abortSignal) =>
    docker.listContainers({ all: true, filters: { label }, abortSignal })
  )
  return found.flatMap(({ Id: id, Labels: labels, Names: names }): ReadonlyArray<OwnContainer> => {
    const { [LABEL.outgoing]: outgoing, [LABEL.run]: run = "", [LABEL.server]: own } = labels
    // Said again here: the filter of an engine that does not know it would let everything through.
    if (labels[LABEL.node] !== node || own === undefined) return []
    if (!names.includes(`/${containerName(own, run)}`)) return []
    return name === undefined || own === name ? [{ id, name: own, run, outgoing }] : []
  })
})

/** Kills and removes a container; one that has gone is no error. */
export const removeContainer = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  yield* engine
    .call("remove the container", (docker, abortSignal) =>
      docker.getContainer(id).remove({ force: true, v: true, abortSignal })
    )
    .pipe(orDone)
})

/** Kills and removes everything of a server or job. */
export const removeOwn = Effect.fnUntraced(function* (node: string, name: string) {
  const found = yield* listOwn(node, name)
  yield* Effect.forEach(found, (container) => removeContainer(container.id), {
    concurrency: 4,
    discard: true
  })
})

const Inspected = Schema.Struct({
  State: Schema.Struct({
    Status: Schema.String,
    Running: Schema.Boolean,
    ExitCode: Schema.Int,
    OOMKilled: Schema.Boolean,
    StartedAt: Schema.String
  })
})
const decodeInspected = Schema.decodeUnknownEffect(Inspected)

export type ContainerState = (typeof Inspected.Type)["State"]

/** State of a container; undefined when there is none. */
export const stateOf = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  const found = yield* engine
    .call("inspect the container", (docker, abortSignal) => docker.getContainer(id).inspect({ abortSignal }))
    .pipe(orGone(undefined))
  if (found === undefined) return undefined
  const { State } = yield* Effect.mapError(
    decodeInspected(found),
    () => new EngineError({ status: 500, message: "the Docker engine says nothing usable of the container" })
  )
  return State
})

/** How long the engine may take to say that a container ran out of memory, in ms: it can come after the end. */
const OOM_PATIENCE = 700

/** Whether the engine has told of a want of memory in the container. */
const toldOutOfMemory = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  const until = (yield* Clock.currentTimeMillis) + OOM_PATIENCE
  const stream = yield* engine.call("read the engine's events", (docker, abortSignal) =>
    docker.getEvents({
      since: 1,
      until: until / 1000,
      filters: { container: [id], event: ["oom"] },
      abortSignal
    })
  )
  const seen = Effect.callback<boolean>((resume) => {
    stream.on("data", () => resume(Effect.succeed(true)))
    for (const end of ["end", "close", "error"]) stream.on(end, () => resume(Effect.succeed(false)))
    return Effect.sync(() => {
      if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy()
    })
  })
  return Option.getOrElse(yield* Effect.timeoutOption(seen, 2 * OOM_PATIENCE), () => false)
})

/** How a container that does not run any more ended. `asked`: it was killed from here. */
export const exitOf = Effect.fnUntraced(function* (id: string, state: ContainerState, asked: boolean) {
  const { ExitCode: code, OOMKilled } = state
  // It may have lost another process to it long before: only the end by SIGKILL counts.
  if (code !== KILLED || asked) return { code, out_of_memory: false }
  const out_of_memory = OOMKilled || (yield* Effect.orElseSucceed(toldOutOfMemory(id), () => false))
  return { code, out_of_memory }
})

const killed: ProcessExit = { code: KILLED, out_of_memory: false }

/** Waits for the end of a container that was started, also while the engine is away. `asked`: see {@link exitOf}. */
export const waitForExit = Effect.fnUntraced(function* (id: string, asked: () => boolean) {
  const engine = yield* Engine
  const look = Effect.andThen(engine.ended(id), stateOf(id)).pipe(
    Effect.catch((error) => Effect.as(Effect.logDebug(error.message), "unknown" as const))
  )
  const state = yield* Effect.repeat(look, {
    while: (found) => found === "unknown" || found?.Running === true,
    schedule: Schedule.spaced(500)
  })
  return state === undefined || state === "unknown" ? killed : yield* exitOf(id, state, asked())
})

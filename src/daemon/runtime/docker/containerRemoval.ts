import { join } from "node:path"
import { Effect, Schema } from "effect"
import type { IoError } from "../../disk/fsio.ts"
import { recordReader, writeAtomic } from "../../disk/replaceFile.ts"
import { ProcessExit } from "../exitReason.ts"
import { listOwn, removeContainer, removeOwn } from "./containers.ts"
import { Engine, type EngineError } from "./Engine.ts"

/** The record of a container, written before its creation, start and removal, so that every end is known. */
const ContainerRecord = Schema.Struct({
  token: Schema.String,
  container: Schema.optionalKey(Schema.String),
  exit: Schema.optionalKey(ProcessExit)
})
type ContainerRecord = typeof ContainerRecord.Type

const read = recordReader(ContainerRecord)

const pathIn = (folder: string) => join(folder, "container.json")

export const writeContainerRecord = (folder: string, record: ContainerRecord): Effect.Effect<void, IoError> =>
  writeAtomic(pathIn(folder), JSON.stringify(record))

/** Returns the record of a run, unless there is none or it belongs to another run. */
export const readContainerRecord = (folder: string, token: string) =>
  read(pathIn(folder)).pipe(
    Effect.map((record) => (record?.token === token ? record : undefined)),
    Effect.catch((error) => Effect.as(Effect.logWarning(error.message), undefined))
  )

/** The pause between two attempts to remove containers, in ms. */
const RETRY_PAUSE = 5000

export interface ContainerRemovalOptions {
  readonly node: string
  /** Whether the engine is optional: one that has never responded has no containers. */
  readonly optional: boolean
  readonly tidy: Effect.Effect<void, EngineError>
}

/** Removes containers, and retries until that succeeds: the engine may be down. */
export const makeContainerRemoval = Effect.fnUntraced(function* (options: ContainerRemovalOptions) {
  const { node, optional, tidy } = options
  const engine = yield* Engine
  const pending = new Set<string>()

  const sweep = Effect.fnUntraced(
    function* (name: string) {
      pending.delete(name)
      yield* removeOwn(node, name).pipe(
        Effect.catch((error) => {
          if (optional && !engine.hasAnswered()) return Effect.logDebug(error.message)
          // Warned once: a node without its engine has many servers to check.
          const isFirst = pending.size === 0
          pending.add(name)
          const message = `containers are removed later: ${error.message}`
          return (isFirst ? Effect.logWarning(message) : Effect.logDebug(message)).pipe(
            Effect.annotateLogs({ server_id: name })
          )
        })
      )
    },
    Effect.provideService(Engine, engine)
  )

  const retry = Effect.gen(function* () {
    if (pending.size > 0) {
      const found = yield* listOwn(node)
      const names = [...pending]
      for (const { id, name } of found) if (names.includes(name)) yield* removeContainer(id)
      for (const name of names) pending.delete(name)
    }
    yield* tidy
  }).pipe(Effect.catch((error) => Effect.logDebug(error.message)))

  yield* Effect.sleep(RETRY_PAUSE).pipe(
    Effect.andThen(retry),
    Effect.forever,
    Effect.provideService(Engine, engine),
    Effect.forkScoped
  )

  return {
    sweep,
    add: (name: string): void => {
      pending.add(name)
    }
  }
})

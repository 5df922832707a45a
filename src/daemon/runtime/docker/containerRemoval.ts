import { Effect } from "effect"
import { listOwn, removeContainer, removeOwn } from "./containers.ts"
import { Engine, type EngineError } from "./Engine.ts"

/** The pause between two attempts to remove containers, in ms. */
const RETRY_PAUSE = 5000

export interface ContainerRemovalOptions {
  readonly node: string
  /** Whether the engine is optional: one that has never responded has no containers. */
  readonly optional: boolean
  /** Removes networks that no container needs. */
  readonly tidy: Effect.Effect<void, EngineError>
}

/** Removes containers, and retries until that succeeds: the engine may be down. */
export const makeContainerRemoval = Effect.fnUntraced(function* (options: ContainerRemovalOptions) {
  const { node, optional, tidy } = options
  const engine = yield* Engine
  /** Servers and jobs whose containers are to be removed. */
  const pending = new Set<string>()

  const sweep = Effect.fnUntraced(function* (name: string) {
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
  })

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
    /** Removes the containers of a server with the next attempt. */
    add: (name: string): void => {
      pending.add(name)
    }
  }
})

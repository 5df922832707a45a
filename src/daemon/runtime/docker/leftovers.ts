import { Effect } from "effect"
import { listOwn, removeContainer, removeOwn } from "./containers.ts"
import { Engine, type EngineError } from "./Engine.ts"

/** Pause before containers that could not be removed are tried again, in ms. */
const AGAIN = 5000

export interface LeftoversOptions {
  readonly node: string
  /** Whether the node does without an engine: nothing is left of one that has never answered. */
  readonly optional: boolean
  /** Removes what is not needed once containers have gone. */
  readonly tidy: Effect.Effect<void, EngineError>
}

/** Removes containers, and goes on until it has worked: the engine may be away when they have to go. */
export const makeLeftovers = Effect.fnUntraced(function* (options: LeftoversOptions) {
  const { node, optional, tidy } = options
  const engine = yield* Engine
  /** Servers and jobs that nothing may be left of. */
  const waiting = new Set<string>()

  const sweep = Effect.fnUntraced(function* (name: string) {
    waiting.delete(name)
    yield* removeOwn(node, name).pipe(
      Effect.catch((error) => {
        if (optional && !engine.hasAnswered()) return Effect.logDebug(error.message)
        // Said once: a node without its engine has many servers to look for.
        const first = waiting.size === 0
        waiting.add(name)
        const message = `containers of ${name} are removed later: ${error.message}`
        return first ? Effect.logWarning(message) : Effect.logDebug(message)
      })
    )
  })

  const again = Effect.gen(function* () {
    if (waiting.size > 0) {
      const found = yield* listOwn(node)
      const names = [...waiting]
      for (const { id, name } of found) if (names.includes(name)) yield* removeContainer(id)
      for (const name of names) waiting.delete(name)
    }
    yield* tidy
  }).pipe(Effect.catch((error) => Effect.logDebug(error.message)))

  yield* Effect.sleep(AGAIN).pipe(
    Effect.andThen(again),
    Effect.forever,
    Effect.provideService(Engine, engine),
    Effect.forkScoped
  )

  return {
    sweep,
    /** To be removed with the next attempt. */
    add: (name: string): void => {
      waiting.add(name)
    }
  }
})

import { Effect } from "effect"
import type { RuntimeKind } from "../../../domain/Node.ts"
import type { Engine } from "./Engine.ts"

/**
 * What the engine lets the node run now; says so at the start and whenever it changes. `optional`: that there is no
 * engine at the start is no warning.
 */
export const makeOffer = (
  engine: Engine["Service"],
  optional: boolean
): Effect.Effect<ReadonlyArray<RuntimeKind>> => {
  let before: boolean | undefined
  return Effect.gen(function* () {
    const found = yield* Effect.result(engine.ping)
    const there = found._tag === "Success"
    if (there !== before) {
      const message = there
        ? `servers can run in containers: ${engine.socket} answers`
        : `servers cannot run in containers: ${found.failure.message}`
      yield* there || (optional && before === undefined)
        ? Effect.logInfo(message)
        : Effect.logWarning(message)
      before = there
    }
    return there ? ["docker"] : []
  })
}

import { Effect, Option } from "effect"
import type { ServerId } from "../domain/Id.ts"
import { RolloutRepo } from "../store/repos/RolloutRepo.ts"
import { Store } from "../store/Store.ts"

/** The longest delay of a stop by a database that does not answer. */
const TIMEOUT = "1 second"

/**
 * Records that a caller stops a server, for the rollout of the server: its end is no failure then. The stop itself needs
 * no database.
 */
export const makeNoteStop = Effect.gen(function* () {
  const rollouts = yield* RolloutRepo
  const store = yield* Store
  return (id: ServerId) =>
    store.read(rollouts.server(id)).pipe(
      Effect.flatMap((found) => (Option.isSome(found) ? store.write(rollouts.stopped(id)) : Effect.void)),
      Effect.timeoutOption(TIMEOUT),
      Effect.catch((error) => Effect.logDebug(`a stop was not recorded: ${error.detail}`))
    )
})

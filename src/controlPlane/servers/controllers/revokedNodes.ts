import { Effect, Layer, Schedule } from "effect"
import { NodeKeys } from "../../keys/NodeKeys.ts"
import { Fleet } from "../../nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { RemoteDaemons } from "../../nodes/remote/RemoteDaemons.ts"

/** Keys are revoked by other processes, which say so in the database alone. */
const EVERY = "250 millis"

/** Disconnects nodes whose key is revoked or expired (spec 6.1). It looks only while a remote node is connected. */
export const RevokedNodes = Layer.effectDiscard(
  Effect.gen(function* () {
    const fleet = yield* Fleet
    const keys = yield* NodeKeys
    const registry = yield* NodeRegistry
    const remotes = yield* RemoteDaemons

    const look = Effect.gen(function* () {
      // Read before the look, because a later registration may have another key.
      const tokens = new Map(
        [...fleet.nodes].flatMap(({ connected, id, record }) =>
          connected && record !== undefined && remotes.has(id) ? [[id, record.token]] : []
        )
      )
      if (tokens.size === 0) return
      for (const id of yield* keys.revoked([...tokens.keys()])) {
        yield* Effect.logWarning("node revoked: its key is revoked or expired").pipe(
          Effect.annotateLogs({ node_id: id })
        )
        yield* registry.revoke(id, tokens.get(id) ?? "", { lost: true })
      }
    })
    yield* look.pipe(
      Effect.catchTag("Unavailable", (error) =>
        Effect.logDebug(`the keys of nodes cannot be read: ${error.detail}`)
      ),
      Effect.repeat(Schedule.spaced(EVERY)),
      Effect.forkScoped
    )
  })
)

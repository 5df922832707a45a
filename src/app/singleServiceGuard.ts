import { Effect, Layer, Schedule } from "effect"
import { DaemonClient } from "../controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../controlPlane/nodes/fleet/Fleet.ts"
import { Leadership } from "../controlPlane/store/Leadership.ts"
import { StartError } from "../shared/config/StartError.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import { hasEmbeddedNode } from "./storage.ts"

/** A service that has just ended is counted for a moment. */
const AGAIN = Schedule.max([Schedule.spaced("250 millis"), Schedule.recurs(20)])

const DO_INSTEAD = "set MUSTER_EMBEDDED_NODE=false and run `muster node` on the machine of that node"

/**
 * Refuses to start if another service runs on the database and one of the two has an embedded node: only its own
 * service reaches an embedded node, and replicas are equal.
 *
 * @error StartError another service runs, and one of the two has an embedded node
 */
export const refuseUnreachableNodes = (settings: ServiceSettings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { othersServe } = yield* Leadership
      const daemons = yield* DaemonClient
      const fleet = yield* Fleet
      const own = hasEmbeddedNode(settings)
      const inAnother = () =>
        [...fleet.nodes].find(
          ({ connected, id, record }) => connected && record?.embedded === true && !daemons.isAttached(id)
        )
      const refusal = () => {
        if (own)
          return `other services run on this database, and cannot reach the node in this one: ${DO_INSTEAD}`
        const node = inAnother()
        return (
          node &&
          `node ${node.id} is in another service on this database, which alone reaches it: there, ${DO_INSTEAD}`
        )
      }
      const why = Effect.gen(function* () {
        const reason = refusal()
        return reason !== undefined && (yield* othersServe) ? reason : undefined
      })
      const still = yield* Effect.repeat(why, { schedule: AGAIN, while: (reason) => reason !== undefined })
      if (still !== undefined) return yield* new StartError({ message: still })
    })
  )

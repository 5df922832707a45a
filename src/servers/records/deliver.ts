import { Effect } from "effect"
import type { DaemonError } from "../../api/Daemon.ts"
import type { Unavailable } from "../../domain/errors.ts"
import type { DaemonServer } from "../../domain/NodeMessages.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { logFields } from "./recordChanges.ts"
import { ServerLifecycle } from "./ServerLifecycle.ts"

/** A call that has sent a server to its node. */
export interface Delivery {
  readonly view: DaemonServer
  /** Whether the record now has the state of the node; see `ServerLifecycle.observe`. */
  readonly isTaken: boolean
}

/** Sends a server with its present definition to its node; undefined: the record is gone or on another node. */
export const makeDeliver = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle

  return Effect.fnUntraced(function* (
    record: ServerRecord
  ): Effect.fn.Return<Delivery | undefined, DaemonError | Unavailable> {
    const { allocations, created_at, definition, id, node_id, redefinition, run } = record
    const sequence = yield* lifecycle.sequence(node_id, id)
    if (sequence === undefined) return undefined
    const migration = index.migrationOf(id)
    const daemon = yield* daemons.of(node_id)
    const view = yield* daemon.create({
      id,
      definition,
      allocations,
      last_sequence: sequence,
      created_at,
      ...(run?.stopped_by === undefined ? {} : { stopped_by: run.stopped_by }),
      ...(migration?.phase === "arriving" ? { arrival: migration.arrival } : {}),
      ...(redefinition === undefined ? {} : { defined_at: redefinition.defined_at }),
      ...(redefinition?.reinstall === true ? { reinstall: true } : {})
    })
    if (redefinition?.delivered === false) {
      if (view.defined_at !== undefined) yield* lifecycle.delivered(id, redefinition.defined_at)
      else {
        yield* Effect.logWarning(
          "the node does not take the new definition of the server: upgrade its daemon"
        ).pipe(Effect.annotateLogs(logFields(record)))
      }
    }
    return { view, isTaken: yield* lifecycle.observe(node_id, view, sequence) } satisfies Delivery
  })
})

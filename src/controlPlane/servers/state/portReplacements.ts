import { Effect, Option } from "effect"
import { portText } from "../../../contract/domain/Allocation.ts"
import { NotFound, Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { isUnderway } from "../../../contract/domain/Migration.ts"
import type { TakenPort } from "../../../contract/domain/NodeMessages.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { portsOf } from "../../store/repos/serverRows.ts"
import { Store } from "../../store/Store.ts"
import { append } from "./migrationRecords.ts"
import { isBeingDeleted, isMoving } from "./power.ts"
import { logFields } from "./recordChanges.ts"

/** Replacements that are tried if other replicas take the ports first. */
const ATTEMPTS = 2

/**
 * Replaces a server's ports that a program of its node has, and returns its allocations (spec 2.4). Ports of others are
 * ignored.
 * @error NotFound the server is not on the node
 * @error Conflict it is deleted or migrates, or no port is free
 */
export const makeReplacePorts = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const journal = yield* Journal
  const migrations = yield* MigrationRepo
  const servers = yield* ServerRepo
  const { write } = yield* Store

  const replaceable = Effect.fnUntraced(function* (node_id: NodeId, id: ServerId) {
    const record = Option.getOrUndefined(yield* servers.lock(id))
    if (record?.node_id !== node_id) return yield* NotFound.server(id)
    if (yield* servers.isRemoving(id)) return yield* isBeingDeleted(id)
    if (isUnderway(Option.getOrUndefined(yield* migrations.find(id)))) return yield* isMoving(id)
    return record
  })

  /** Writes other allocations of a record, unless it has changed since. */
  const replace = Effect.fnUntraced(function* (
    before: ServerRecord,
    allocations: ServerRecord["allocations"]
  ) {
    const { id: server_id, node_id } = before
    const record = yield* replaceable(node_id, server_id)
    if (JSON.stringify(record.allocations) !== JSON.stringify(before.allocations)) return "changed" as const
    const outcome = yield* servers.replacePorts(record, allocations)
    if (outcome === "port-taken") return outcome
    yield* append({ topic: "server:placed", server_id, payload: { node_id, allocations } }, record)
    return outcome
  })

  const attempt = Effect.fnUntraced(function* (
    node_id: NodeId,
    id: ServerId,
    taken: ReadonlyArray<TakenPort>
  ) {
    const record = yield* write(replaceable(node_id, id))
    const held = portsOf(record)
    const lost = held
      .filter(({ address, port }) => taken.some((one) => one.ip === address && one.port === port))
      .map(({ address: ip, port }) => ({ ip, port }))
    if (lost.length === 0) return record.allocations
    const allocations = yield* balancer.replacePorts(record, lost)
    // An interruption waits for the write, whose outcome decides which ports are reserved.
    if ((yield* Effect.uninterruptible(write(replace(record, allocations)))) !== "inserted") return undefined
    yield* Effect.logWarning(
      `another program of the node has ${lost.map(portText).join(", ")}: the server has ${portText(allocations.default)} now`
    ).pipe(Effect.annotateLogs(logFields(record)))
    return allocations
  }, Effect.scoped)

  return Effect.fn("ServerLifecycle.replacePorts")(function* (
    node_id: NodeId,
    id: ServerId,
    taken: ReadonlyArray<TakenPort>
  ) {
    for (let tried = 0; tried < ATTEMPTS; tried++) {
      const allocations = yield* attempt(node_id, id, taken)
      if (allocations !== undefined) return allocations
      yield* journal.catchUp
    }
    return yield* new Unavailable({ detail: `other servers took the free ports of node ${node_id} first` })
  })
})

import { Clock, Effect } from "effect"
import type { AuditedRequest } from "../../contract/domain/AuditedRequest.ts"
import type { Forbidden } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { finishSteps } from "../../contract/domain/InstallState.ts"
import { committedMemoryBytes, diskLimitBytes } from "../../contract/domain/Limits.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import type { PlacementRequest } from "../nodes/placementChoice.ts"
import { type AvailableCapacity, CapacityRepo } from "../store/repos/CapacityRepo.ts"
import { IdempotencyRepo, type IdempotentAnswer } from "../store/repos/IdempotencyRepo.ts"
import { OperationRepo } from "../store/repos/OperationRepo.ts"
import { ServerRepo } from "../store/repos/ServerRepo.ts"
import { Store, Transaction } from "../store/Store.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { makeQuotaUsage, type QuotaClaim } from "./state/quotaRules.ts"

/** Lifetime of the answer to an idempotency key: 24 h, in milliseconds. */
export const ANSWER_LIFETIME = 24 * 60 * 60 * 1000

/** A creation whose server has a node and ports. `body` is the response to its caller. */
export interface Placed extends QuotaClaim {
  readonly record: ServerRecord
  readonly body: string
  readonly placement: PlacementRequest
  readonly idempotency: { readonly key: string; readonly body_hash: string } | undefined
  readonly audited: AuditedRequest | undefined
  /** The operation that gives the server the files of a backup. */
  readonly restore: OperationRecord | undefined
}

/** Returns the record with its last step before the node has the server. */
const committed = (record: ServerRecord, at: number): ServerRecord => ({
  ...record,
  install: {
    ...record.install,
    steps: finishSteps(record.install.steps ?? [], new Date(at).toISOString())
  }
})

/** What the transaction has made of a creation. */
export type Insertion =
  | { readonly _tag: "created" }
  | { readonly _tag: "repeated"; readonly answer: IdempotentAnswer }
  | { readonly _tag: "port-taken" }
  | { readonly _tag: "over-quota"; readonly error: Forbidden }
  | { readonly _tag: "refused"; readonly reason: string }

const pairOf = ({ blueprint_id, node_id }: ServerRecord) => `${node_id} ${blueprint_id}`

interface Taken {
  memory_bytes: number
  disk_bytes: number
}

/** The free capacity of nodes by the rows, less what earlier creations of the write have taken. */
export const availableCapacity = Effect.fnUntraced(function* (
  rooms: CapacityRepo["Service"],
  placed: ReadonlyArray<{ readonly record: ServerRecord }>
) {
  const byPair = new Map(placed.map(({ record }) => [pairOf(record), record]))
  const found = yield* Effect.forEach(
    byPair,
    ([pair, { blueprint_id, node_id }]) =>
      Effect.map(rooms.of(node_id, blueprint_id), (room) => [pair, room] as const),
    { concurrency: "unbounded" }
  )
  const read = new Map(found)
  const byNode = new Map<NodeId, Taken>()
  const blueprints = new Set<string>()
  const taken = (node_id: NodeId): Taken => byNode.get(node_id) ?? { memory_bytes: 0, disk_bytes: 0 }

  return {
    /** Returns the free capacity of a server's node, unless the node was deleted. */
    of: (record: ServerRecord): AvailableCapacity | undefined => {
      const room = read.get(pairOf(record))
      const { disk_bytes, memory_bytes } = taken(record.node_id)
      return (
        room && {
          ...room,
          memory_bytes: room.memory_bytes + memory_bytes,
          disk_bytes: room.disk_bytes + disk_bytes,
          has_blueprint: room.has_blueprint || blueprints.has(pairOf(record))
        }
      )
    },
    take: (record: ServerRecord): void => {
      const { definition, node_id } = record
      const { disk_bytes, memory_bytes } = taken(node_id)
      byNode.set(node_id, {
        memory_bytes: memory_bytes + committedMemoryBytes(definition.limits),
        disk_bytes: disk_bytes + diskLimitBytes(definition.limits)
      })
      blueprints.add(pairOf(record))
    }
  }
})

/** Decides which of several creations have an answer already, fit their nodes, and stay within their quotas. */
const makeDecide = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const idempotency = yield* IdempotencyRepo
  const rooms = yield* CapacityRepo
  const usageOf = yield* makeQuotaUsage

  return Effect.fnUntraced(function* (creations: ReadonlyArray<Placed>) {
    const keys = creations.flatMap(({ idempotency }) => idempotency?.key ?? [])
    const [answers, room] = yield* Effect.all(
      [
        idempotency.findAll(keys, (yield* Clock.currentTimeMillis) - ANSWER_LIFETIME),
        availableCapacity(rooms, creations)
      ],
      { concurrency: "unbounded" }
    )
    const usage = yield* usageOf(creations)
    const insertions = new Map<Placed, Insertion>()
    const fitting = creations.filter((creation) => {
      const { placement, record } = creation
      const answer = answers.get(creation.idempotency?.key ?? "")
      const reason = balancer.whyNot(placement, room.of(record))
      const overQuota = usage.refusal(creation)
      if (answer !== undefined) insertions.set(creation, { _tag: "repeated", answer })
      else if (reason !== undefined) insertions.set(creation, { _tag: "refused", reason })
      else if (overQuota !== undefined) insertions.set(creation, { _tag: "over-quota", error: overQuota })
      else {
        room.take(record)
        usage.count(creation)
      }
      return !insertions.has(creation)
    })
    return { fitting, insertions }
  })
})

/**
 * Writes the records of placed servers with their ports, first journal entries and idempotent answers. Creations that
 * wait for the database share a transaction.
 */
export const makeInsert = Effect.gen(function* () {
  const decide = yield* makeDecide
  const idempotency = yield* IdempotencyRepo
  const index = yield* ServerIndex
  const operations = yield* OperationRepo
  const servers = yield* ServerRepo
  const store = yield* Store

  const insertAll = Effect.fnUntraced(function* (creations: ReadonlyArray<Placed>) {
    const transaction = yield* Transaction
    const created_at = yield* Clock.currentTimeMillis
    const { fitting, insertions } = yield* decide(creations)
    const records = fitting.map(({ record }) => committed(record, created_at))
    records.forEach(index.storing)
    const outcomes = yield* servers.insertAll(records)
    for (const [index, creation] of fitting.entries()) {
      insertions.set(creation, { _tag: outcomes[index] === "inserted" ? "created" : "port-taken" })
    }
    if (outcomes.includes("port-taken")) {
      // Its server does not count, so creations without quota because of it are tried again.
      for (const [creation, insertion] of insertions) {
        if (insertion._tag === "over-quota")
          insertions.set(creation, { _tag: "refused", reason: insertion.error.detail })
      }
    }
    const created = fitting.filter((creation) => insertions.get(creation)?._tag === "created")
    yield* idempotency.keepAll(
      created.flatMap(({ body: response, idempotency: request }) =>
        request === undefined ? [] : { ...request, response, created_at }
      )
    )
    for (const creation of creations) {
      const isCreated = insertions.get(creation)?._tag === "created"
      creation.audited?.describe(
        isCreated ? { id: creation.record.id, name: creation.record.name ?? undefined } : { id: null }
      )
    }
    for (const { record, restore } of created) {
      const { id: server_id } = record
      yield* transaction.append({ topic: "server:created", server_id, payload: null }, record)
      yield* transaction.append({ topic: "status", server_id, payload: record.status }, record)
      if (restore !== undefined) yield* operations.insert(restore, record)
    }
    return creations.flatMap((creation) => insertions.get(creation) ?? [])
  })

  return store.together(insertAll)
})

import { Effect, Option } from "effect"
import type { NodeId } from "../../contract/domain/Id.ts"
import { committedMemoryBytes, diskLimitBytes } from "../../contract/domain/Limits.ts"
import type { Quota } from "../../contract/domain/Quota.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { AvailableCapacity, CapacityRepo } from "../store/repos/CapacityRepo.ts"
import { QuotaRepo } from "../store/repos/QuotaRepo.ts"
import { quotaRefusal, withServer } from "./state/quotaRules.ts"

export interface QuotaUse {
  readonly quotas: ReadonlyArray<Quota>
  readonly record: Pick<ServerRecord, "definition">
}

const textOf = ({ key_id, name }: Quota): string => (name === undefined ? `key:${key_id}` : name)

/** Returns the use of quotas by the rows within the creations' write: no replica changes it before the commit. */
export const makeQuotaUsage = Effect.map(QuotaRepo, (repo) =>
  Effect.fnUntraced(function* (creations: ReadonlyArray<QuotaUse>) {
    const uses = new Map<string, Effect.Success<ReturnType<typeof repo.use>>>()
    for (const quota of creations.flatMap(({ quotas }) => quotas)) {
      if (!uses.has(textOf(quota))) uses.set(textOf(quota), yield* repo.use(quota))
    }
    const usesOf = ({ quotas }: QuotaUse) => quotas.flatMap((quota) => uses.get(textOf(quota)) ?? [])
    return {
      /** Returns why the quotas refuse a creation after the counted ones, if they do. */
      refusal: (creation: QuotaUse) => {
        const { limits } = creation.record.definition
        for (const { quota, used } of usesOf(creation)) {
          const refusal = quotaRefusal(quota, used, limits)
          if (refusal !== undefined) return refusal
        }
        return undefined
      },
      count: (creation: QuotaUse): void => {
        const { limits } = creation.record.definition
        for (const { quota, used } of usesOf(creation))
          uses.set(textOf(quota), { quota, used: withServer(used, limits) })
      }
    }
  })
)

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
    of: (record: ServerRecord): Option.Option<AvailableCapacity> =>
      Option.map(read.get(pairOf(record)) ?? Option.none(), (room) => {
        const { disk_bytes, memory_bytes } = taken(record.node_id)
        return {
          ...room,
          memory_bytes: room.memory_bytes + memory_bytes,
          disk_bytes: room.disk_bytes + disk_bytes,
          has_blueprint: room.has_blueprint || blueprints.has(pairOf(record))
        }
      }),
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

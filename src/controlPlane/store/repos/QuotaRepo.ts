import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { type Quota, QuotaLimits, QuotaName, type QuotaUse } from "../../../contract/domain/Key.ts"
import { hasRows, IntColumn, JsonColumn, readRows, tableOf } from "../sql/rows.ts"
import { keysChanged } from "../sql/Transaction.ts"

export const QuotaRecord = Schema.Struct({
  name: QuotaName,
  limits: JsonColumn(QuotaLimits),
  /** RFC 3339, UTC. */
  created_at: Schema.String
})
export type QuotaRecord = typeof QuotaRecord.Type

/** The servers that count for a quota: their number, and the sums that are reserved for them. */
export interface Usage {
  readonly servers: number
  readonly memory_bytes: number
  readonly disk_bytes: number
  /** Thousandths of a percent of one thread. */
  readonly cpu_millipercent: number
}

export const unused: Usage = { servers: 0, memory_bytes: 0, disk_bytes: 0, cpu_millipercent: 0 }

const UsageRow = Schema.Struct({
  owner: Schema.String,
  servers: IntColumn,
  memory_bytes: IntColumn,
  disk_bytes: IntColumn,
  cpu_millipercent: IntColumn
})
const readUsages = readRows(UsageRow)
const quotas = tableOf("quotas", QuotaRecord, "name")

/** Quotas that keys share, and the use of all quotas. Every change has a journal entry (`key:changed`). */
export class QuotaRepo extends Context.Service<QuotaRepo>()("muster/store/QuotaRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    // A migrating server has two reservations.
    const usagesOf = (owner: "created_by" | "quota", only?: string) =>
      Effect.map(
        readUsages(sql`SELECT owner, COUNT(*) AS servers, SUM(memory_bytes) AS memory_bytes, SUM(disk_bytes) AS disk_bytes,
            SUM(cpu_millipercent) AS cpu_millipercent
          FROM (SELECT ${sql(owner)} AS owner, MAX(memory_bytes) AS memory_bytes, MAX(disk_bytes) AS disk_bytes,
              MAX(cpu_millipercent) AS cpu_millipercent
            FROM servers JOIN reservations ON reservations.server_id = servers.id
              LEFT JOIN api_keys ON api_keys.id = created_by
            WHERE ${only === undefined ? sql`${sql(owner)} IS NOT NULL` : sql`${sql(owner)} = ${only}`}
            GROUP BY ${sql(owner)}, servers.id) AS own
          GROUP BY owner`),
        (rows) => new Map<string, Usage>(rows.map(({ owner, ...usage }) => [owner, usage]))
      )

    const { find, put, remove } = quotas.on(sql)

    return {
      all: quotas.read(sql`SELECT * FROM quotas ORDER BY name`),
      find,
      put: (record: QuotaRecord) => Effect.andThen(put(record), keysChanged(sql)),
      remove: (name: string) => Effect.andThen(remove(name), keysChanged(sql)),
      /** The use of each quota that keys share, by name, unless it is unused. */
      usages: usagesOf("quota"),
      /** Returns a quota with its present limits, and its use; a deleted one allows nothing. */
      use: Effect.fnUntraced(function* (
        quota: Quota
      ): Effect.fn.Return<{ readonly quota: Quota; readonly used: Usage }, SqlError.SqlError> {
        const { key_id, name } = quota
        const usages = yield* name === undefined ? usagesOf("created_by", key_id) : usagesOf("quota", name)
        const used = usages.get(name ?? key_id) ?? unused
        if (name === undefined) return { quota, used }
        const found = yield* find(name)
        return { quota: { name, ...limitsOf(found) }, used }
      }),
      /** Whether the servers that a key has created count for a quota. */
      counts: ({ key_id: own, name }: Quota, key_id: string | undefined) =>
        name === undefined || key_id === undefined
          ? Effect.succeed(key_id !== undefined && key_id === own)
          : hasRows(sql`SELECT id FROM api_keys WHERE id = ${key_id} AND quota = ${name}`)
    }
  })
}) {
  static readonly layer = Layer.effect(QuotaRepo, QuotaRepo.make)
}

export const limitsOf = (record: QuotaRecord | undefined): QuotaLimits => record?.limits ?? { max_servers: 0 }

export const useOf = ({ cpu_millipercent, disk_bytes, memory_bytes, servers }: Usage): QuotaUse => ({
  servers,
  memory: memory_bytes / (1024 * 1024),
  cpu: cpu_millipercent / 1000,
  disk: disk_bytes / 1_000_000
})

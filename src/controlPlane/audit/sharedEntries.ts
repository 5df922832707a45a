import { type AuditRecord, auditRecord } from "../../contract/domain/AuditedRequest.ts"

/** Requests without a change of a key in a minute that have an entry each. */
export const SINGLE_ENTRIES = 100

const MINUTE = 60_000

interface Minute {
  /** Milliseconds since the epoch. */
  readonly endsAt: number
  singles: number
  /** By action and status: one entry for all further requests. */
  readonly shared: Map<string, AuditRecord>
}

/**
 * Bounds the entries of requests that change nothing (refused ones, tickets, a `PATCH` to the same values), so that they
 * cannot fill the database: beyond {@link SINGLE_ENTRIES} in a minute, such requests of a key share an entry for each action and
 * status, which has their number.
 */
export const makeSharedEntries = () => {
  const byKey = new Map<string, Minute>()

  const share = (shared: Map<string, AuditRecord>, { entry }: AuditRecord) => {
    const name = `${entry.action} ${entry.result.status}`
    const first = shared.get(name)?.entry
    const { id: _, name: __, ...object } = entry.object
    shared.set(
      name,
      auditRecord({
        ...(first ?? { ...entry, changes: [], object: { ...object, id: null } }),
        repeated: (first?.repeated ?? 0) + 1
      })
    )
  }

  return {
    /** Returns the entry if the request has its own. */
    add: (record: AuditRecord, now: number): AuditRecord | undefined => {
      const key = record.entry.actor.key_id ?? ""
      const minute = byKey.get(key) ?? { endsAt: now + MINUTE, singles: 0, shared: new Map() }
      byKey.set(key, minute)
      minute.singles += 1
      if (minute.singles <= SINGLE_ENTRIES) return record
      share(minute.shared, record)
      return undefined
    },
    /** Returns the shared entries of the minutes that are over. */
    take: (now: number): ReadonlyArray<AuditRecord> => {
      const over = [...byKey].filter(([, { endsAt }]) => now >= endsAt)
      for (const [key] of over) byKey.delete(key)
      return over.flatMap(([, { shared }]) => [...shared.values()])
    },
    takeAll: (): ReadonlyArray<AuditRecord> => {
      const all = [...byKey.values()].flatMap(({ shared }) => [...shared.values()])
      byKey.clear()
      return all
    }
  } as const
}

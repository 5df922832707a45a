import { type AuditRecord, auditRecord } from "../domain/AuditedRequest.ts"

/** Refused requests of a key in a minute that have an entry each. */
export const SINGLE_REFUSALS = 100

const MINUTE = 60_000

interface Refusals {
  /** Milliseconds since the epoch. */
  readonly endsAt: number
  singles: number
  /** By action and status: one entry for all further requests. */
  readonly shared: Map<string, AuditRecord>
}

/**
 * Bounds the entries of refused requests, so that a key without rights cannot fill the database: beyond
 * {@link SINGLE_REFUSALS} in a minute, the refused requests of a key share an entry for each action and status, which has
 * their number.
 */
export const makeRefusals = () => {
  const byKey = new Map<string, Refusals>()

  const share = (shared: Map<string, AuditRecord>, { entry }: AuditRecord) => {
    const name = `${entry.action} ${entry.result.status}`
    const first = shared.get(name)?.entry
    const { id: _, ...object } = entry.object
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
      const refusals = byKey.get(key) ?? { endsAt: now + MINUTE, singles: 0, shared: new Map() }
      byKey.set(key, refusals)
      refusals.singles += 1
      if (refusals.singles <= SINGLE_REFUSALS) return record
      share(refusals.shared, record)
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

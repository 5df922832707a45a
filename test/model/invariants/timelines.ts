/** The journal, grouped by server. */
import { Schema } from "effect"
import { isOfServer } from "../../support/invariants.ts"
import type { JournalRow, Tables } from "../Snapshot.ts"

export interface Timeline {
  readonly id: string
  readonly blueprint_id: string
  readonly entries: ReadonlyArray<JournalRow>
  readonly statuses: ReadonlyArray<JournalRow>
  /** Whether it was deleted and undeleted. */
  readonly hasReturned: boolean
  readonly isDeleted: boolean
}

export const timelinesOf = ({ journal }: Pick<Tables, "journal">): ReadonlyMap<string, Timeline> => {
  const byServer = Map.groupBy(journal.filter(isOfServer), ({ server_id }) => server_id)
  return new Map(
    [...byServer].map(([id, entries]) => {
      const since = entries.findLastIndex(({ topic }) => topic === "server:created")
      return [
        id,
        {
          id,
          blueprint_id: entries[0]?.blueprint_id ?? "",
          entries,
          statuses: entries.filter(({ topic }) => topic === "status"),
          hasReturned: since > 0,
          isDeleted: entries.some(({ topic }, index) => topic === "deleted" && index > since)
        }
      ]
    })
  )
}

/** The payload of the newest entry of a topic; undefined: there is none. */
export const newest = (timeline: Timeline | undefined, topic: string): JournalRow["payload"] | undefined =>
  timeline?.entries.findLast((entry) => entry.topic === topic)?.payload

const hasPhase = Schema.is(Schema.Struct({ phase: Schema.String }))

/** Whether a payload is that of an installation in the phase. */
export const isInstall = (payload: unknown, phase: string): boolean =>
  hasPhase(payload) && payload.phase === phase

const isNodeChange = Schema.is(Schema.Struct({ node_id: Schema.String, kind: Schema.String }))

/** Cursors at which each node was given up, which deletes its servers that are not saved. */
export const givenUp = ({ journal }: Pick<Tables, "journal">): ReadonlyMap<string, ReadonlyArray<number>> => {
  const times = new Map<string, Array<number>>()
  for (const { cursor, payload, topic } of journal) {
    if (topic !== "node:changed" || !isNodeChange(payload) || payload.kind !== "given-up") continue
    times.set(payload.node_id, [...(times.get(payload.node_id) ?? []), cursor])
  }
  return times
}

/** The node of each server at its creation. */
export const firstNodes = ({ idempotency }: Pick<Tables, "idempotency">): ReadonlyMap<string, string> =>
  new Map(idempotency.map(({ response }) => [response.id, response.node_id]))

/** Which backups go: by the rule `keep` of a blueprint (spec 12.8), and once they expire (spec 12.1). */
import { Clock, Effect, Layer, Schedule } from "effect"
import type { BackupRecord } from "../../contract/domain/Backup.ts"
import type { KeepRule } from "../../contract/domain/BackupTarget.ts"
import { Leadership } from "../store/Leadership.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"
import { makeRemoveBackup } from "./Backups.ts"

type Candidate = Pick<BackupRecord, "created_at" | "expires_at" | "id" | "pinned" | "state">

const DAY = 24 * 3600 * 1000
const WEEK = 7 * DAY
/** 1970-01-05 was a Monday. */
const MONDAY = 4 * DAY

/** The spans of UTC in which a rule keeps the newest backup, as their names. */
const spans = {
  hourly: (at: string) => at.slice(0, 13),
  daily: (at: string) => at.slice(0, 10),
  weekly: (at: string) => String(Math.floor((Date.parse(at) - MONDAY) / WEEK)),
  monthly: (at: string) => at.slice(0, 7)
} satisfies Partial<Record<keyof KeepRule, (at: string) => string>>

/** Returns the first backup of each of the first `count` spans. */
const firstOfEach = <A extends Candidate>(
  newestFirst: ReadonlyArray<A>,
  spanOf: (at: string) => string,
  count: number
): ReadonlyArray<A> => {
  const first = new Map<string, A>()
  for (const backup of newestFirst) {
    const span = spanOf(backup.created_at)
    if (!first.has(span)) first.set(span, backup)
    if (first.size > count) break
  }
  return [...first.values()].slice(0, count)
}

/**
 * Returns the backups of one server that go. Pinned ones and those with an expiry of their own stay and are not
 * counted, and the newest good one stays always. Only times of backups count: a clock that jumps removes nothing.
 */
export const surplus = <A extends Candidate>(backups: ReadonlyArray<A>, keep: KeepRule): ReadonlyArray<A> => {
  const counted = backups
    .filter(({ expires_at, pinned, state }) => state === "done" && !pinned && expires_at === null)
    .toSorted((a, b) =>
      a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : a.id < b.id ? 1 : -1
    )
  const kept = new Set<A>(counted.slice(0, Math.max(1, keep.last ?? 0)))
  for (const [name, count = 0] of [
    ["hourly", keep.hourly],
    ["daily", keep.daily],
    ["weekly", keep.weekly],
    ["monthly", keep.monthly]
  ] as const)
    for (const backup of firstOfEach(counted, spans[name], count)) kept.add(backup)
  return counted.filter((backup) => !kept.has(backup))
}

/** Backups of one round. */
const AT_ONCE = 100

/** Removes expired and deleted backups on the leader, one after another (spec 12.1). */
export const BackupExpiry = Layer.effectDiscard(
  Effect.gen(function* () {
    const leadership = yield* Leadership
    const remove = yield* makeRemoveBackup
    const repo = yield* BackupRepo
    const store = yield* Store

    const removeOne = (record: BackupRecord) =>
      remove(record).pipe(
        Effect.andThen(
          record.state === "deleting" ? Effect.void : Effect.logInfo("a backup has expired and was removed")
        ),
        // Its node is away: the next round tries again.
        Effect.catch((error) => Effect.logDebug(`a backup was not removed: ${error._tag}`)),
        Effect.annotateLogs({ backup_id: record.id, server_id: record.server_id })
      )
    const round = Effect.gen(function* () {
      const now = new Date(yield* Clock.currentTimeMillis).toISOString()
      const due = yield* store.read(repo.due(now, AT_ONCE))
      yield* Effect.forEach(due, removeOne, { discard: true })
    }).pipe(Effect.catch(({ detail }) => Effect.logDebug(`backups were not looked at: ${detail}`)))
    yield* leadership.whileLeader(Effect.asVoid(Effect.repeat(round, Schedule.spaced("10 seconds"))))
  })
)

/** The changes that a sync would make in a definitions folder. */
import { DateTime, Effect } from "effect"
import type { Mount } from "../parse/readFolder.ts"
import type { Placed, PlacedRecord } from "./PlacedRecord.ts"
import { link, linkedState, type Place, unlink } from "./placement.ts"
import { cannot, type SyncFailed } from "./reasons.ts"
import type { Source } from "./Source.ts"
import type { Synced } from "./sync.ts"

/** The new state of one source, or its removal. */
export interface Candidate<R = never> {
  readonly id: string
  /** The view of the definitions folder with the candidate in place. */
  readonly mounts: ReadonlyArray<Mount>
  /** The folder of a source without files in place. */
  readonly newFolder: string | undefined
  /** Puts the candidate in place, in one step; must not be interrupted. */
  readonly place: Effect.Effect<void, SyncFailed, R>
}

const removal = (destination: string): Mount => ({ at: destination, directory: undefined })

/** Returns the destinations of an entry that link to the source now, with their states. */
const inUse = Effect.fnUntraced(
  function* (place: Place, { destinations, id }: Placed) {
    const links = yield* Effect.forEach(destinations, (destination) =>
      Effect.map(linkedState(place, id, destination), (state) => ({ destination, state }))
    )
    return links.flatMap(({ destination, state }) => (state === undefined ? [] : [{ destination, state }]))
  },
  Effect.mapError(cannot("its folder cannot be looked at"))
)

/** Returns the state of a source that is in use. */
export const stateInUse = Effect.fnUntraced(function* (place: Place, placed: Placed | undefined) {
  return placed === undefined ? undefined : (yield* inUse(place, placed)).at(-1)?.state
})

/** Replaces a source's state by a new one, also at a changed destination. */
export const arrival = Effect.fnUntraced(function* (
  source: Source,
  { commit, state }: Synced,
  place: Place,
  record: PlacedRecord
) {
  const { destination, id, kind } = source
  const before = yield* record.find(source)
  const old = before === undefined ? [] : yield* inUse(place, before)
  const moved = old.map((one) => one.destination).filter((one) => one !== destination)
  const placing = Effect.gen(function* () {
    const { commit: was = null, synced_at: at = null } = before ?? {}
    // Recorded first: a folder outside the record is never replaced.
    yield* record.put({ kind, id, destinations: [...moved, destination], commit: was, synced_at: at })
    yield* link(place, id, destination, state)
    yield* Effect.forEach(moved, (one) => unlink(place, id, one), { discard: true })
    const synced_at = DateTime.formatIso(yield* DateTime.now)
    yield* record.put({ kind, id, destinations: [destination], commit, synced_at })
    if (commit !== was) {
      yield* Effect.logInfo(`${kind}: source ${id} is at ${source.ref ?? "HEAD"} (${commit.slice(0, 12)})`)
    }
  })
  return {
    id,
    mounts: [{ at: destination, directory: state }, ...moved.map(removal)],
    newFolder: old.length === 0 ? destination : undefined,
    place: placing
  } satisfies Candidate<unknown>
})

/** Removes the files of a source that is no longer listed. */
export const departure = Effect.fnUntraced(function* (placed: Placed, place: Place, record: PlacedRecord) {
  const old = yield* inUse(place, placed)
  const removing = Effect.gen(function* () {
    yield* Effect.forEach(old, ({ destination }) => unlink(place, placed.id, destination), { discard: true })
    yield* record.remove(placed)
  })
  return {
    id: placed.id,
    mounts: old.map(({ destination }) => removal(destination)),
    newFolder: undefined,
    place: removing
  } satisfies Candidate<unknown>
})

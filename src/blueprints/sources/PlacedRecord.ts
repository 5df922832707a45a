import { Effect, FileSystem, Path, Schema, Semaphore } from "effect"
import { cannot, SyncFailed } from "./reasons.ts"

/** The files that this service placed for a source, recorded before they are placed. */
export const Placed = Schema.Struct({
  kind: Schema.Literals(["blueprints", "software"]),
  id: Schema.String,
  /** Every folder that may link to a state of the source; the last one is the current one. */
  destinations: Schema.Array(Schema.String),
  /** The commit that was placed last. */
  commit: Schema.NullOr(Schema.String),
  /** RFC 3339. */
  synced_at: Schema.NullOr(Schema.String)
})
export type Placed = typeof Placed.Type

const Contents = Schema.fromJsonString(
  Schema.Struct({
    owner: Schema.String.check(Schema.isPattern(/^[0-9a-f]{12}$/)),
    sources: Schema.Array(Placed)
  })
)
type Contents = typeof Contents.Type

const encode = Schema.encodeSync(Contents)

/** The record of placed files: only folders in this record are ever replaced or removed. */
export interface PlacedRecord {
  /** The name of this data folder among others that place files into the same definitions folder. */
  readonly owner: string
  readonly all: Effect.Effect<ReadonlyArray<Placed>>
  find(source: Pick<Placed, "kind" | "id">): Effect.Effect<Placed | undefined>
  /** Adds or replaces the entry of a source, durably. */
  put(placed: Placed): Effect.Effect<void, SyncFailed>
  remove(source: Pick<Placed, "kind" | "id">): Effect.Effect<void, SyncFailed>
}

const FILE = "placed.json"

const isOf = (source: Pick<Placed, "kind" | "id">) => (other: Placed) =>
  other.kind === source.kind && other.id === source.id

/**
 * Opens the record of a data folder; makes a missing one.
 *
 * @param directory the folder of the sources in the data folder
 */
export const openRecord = Effect.fnUntraced(function* (directory: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const oneAtATime = yield* Semaphore.make(1)
  const file = path.join(directory, FILE)

  const none = Effect.sync(
    (): Contents => ({ owner: crypto.randomUUID().replaceAll("-", "").slice(0, 12), sources: [] })
  )
  let contents = yield* fs.readFileString(file).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Contents)),
    Effect.catchReason("PlatformError", "NotFound", () => none),
    Effect.mapError((error) =>
      error._tag === "PlatformError"
        ? cannot(`${file} cannot be read`)(error)
        : new SyncFailed({ reason: `${file} is damaged; remove it and the folders that sources have placed` })
    )
  )

  const change = Effect.fnUntraced(
    function* (of: (sources: ReadonlyArray<Placed>) => ReadonlyArray<Placed>) {
      const next = { ...contents, sources: of(contents.sources) }
      yield* fs.makeDirectory(directory, { recursive: true, mode: 0o700 })
      const opened = yield* fs.open(`${file}.tmp`, { flag: "w", mode: 0o600 })
      yield* opened.writeAll(new TextEncoder().encode(encode(next)))
      yield* opened.sync
      yield* fs.rename(`${file}.tmp`, file)
      contents = next
    },
    Effect.scoped,
    Effect.mapError(cannot("the record of sources cannot be written")),
    oneAtATime.withPermits(1)
  )
  yield* change((sources) => sources)
  return {
    owner: contents.owner,
    all: Effect.sync(() => contents.sources),
    find: (source) => Effect.sync(() => contents.sources.find(isOf(source))),
    put: (placed) => change((sources) => [...sources.filter((one) => !isOf(placed)(one)), placed]),
    remove: (source) => change((sources) => sources.filter((one) => !isOf(source)(one)))
  } satisfies PlacedRecord
})

/** Reads the record of a data folder, if there is one; makes nothing. */
export const readRecord = Effect.fnUntraced(function* (directory: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  return yield* fs.readFileString(path.join(directory, FILE)).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Contents)),
    Effect.map(({ sources }) => sources),
    Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed([]))
  )
})

/** One rename links a destination to a folder below `.muster-sources`: no destination has half of a state. */
import { Effect, FileSystem, Path, Schema } from "effect"
import { cannot, SyncFailed } from "./reasons.ts"

const HIDDEN = ".muster-sources"

/** The states of one service's sources below one definitions folder. */
export interface Place {
  /** The definitions folder. */
  readonly folder: string
  /** The data folder that made the states: another service may use the same definitions folder. */
  readonly owner: string
}

const About = Schema.fromJsonString(
  Schema.Struct({
    id: Schema.String,
    destination: Schema.String,
    commit: Schema.String,
    synced_at: Schema.String
  })
)

/** A state, described by a file in it whose name the stores do not read. */
export type State = typeof About.Type & { readonly folder: string }

const ABOUT = ".source.json"

const statesOf = ({ folder, owner }: Place) =>
  Effect.map(Path.Path, (path) => path.join(folder, HIDDEN, owner))

const random = Effect.sync(() => crypto.randomUUID().slice(0, 8))

export const makeState = Effect.fnUntraced(
  function* (place: Place, id: string) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const state = path.join(yield* statesOf(place), `${id}.${yield* random}`)
    yield* fs.makeDirectory(state, { recursive: true })
    return state
  },
  Effect.mapError(cannot("its files cannot be written"))
)

/** Describes a state and syncs its files to the disk. */
export const finishState = Effect.fnUntraced(
  function* ({ folder, ...about }: State, files: ReadonlyArray<string>) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    yield* fs.writeFileString(path.join(folder, ABOUT), Schema.encodeSync(About)(about))
    yield* Effect.forEach(
      [ABOUT, ...files],
      (file) => Effect.scoped(Effect.flatMap(fs.open(path.join(folder, file)), ({ sync }) => sync)),
      { concurrency: 16, discard: true }
    )
  },
  Effect.mapError(cannot("its files cannot be written"))
)

const namesIn = Effect.fnUntraced(function* (folder: string) {
  const fs = yield* FileSystem.FileSystem
  return yield* fs
    .readDirectory(folder)
    .pipe(Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed<Array<string>>([])))
})

/** Returns the states that their destinations link to. */
export const statesInUse = Effect.fnUntraced(
  function* (place: Place) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const states = yield* statesOf(place)
    const look = Effect.fnUntraced(function* (name: string) {
      const folder = path.join(states, name)
      const about = yield* Effect.flatMap(
        fs.readFileString(path.join(folder, ABOUT)),
        Schema.decodeEffect(About)
      )
      const linked = yield* fs.realPath(path.join(place.folder, about.destination))
      return linked === (yield* fs.realPath(folder)) ? [{ ...about, folder }] : []
    })
    const none = () => Effect.succeed<Array<State>>([])
    const found = yield* Effect.forEach(yield* namesIn(states), (name) =>
      look(name).pipe(
        Effect.catchTag("SchemaError", none),
        // the destination or a part of its path is not there, or the part is no folder
        Effect.catchReasons("PlatformError", { NotFound: none, BadResource: none })
      )
    )
    return found.flat()
  },
  Effect.mapError(cannot("the folders of sources cannot be looked at"))
)

/** The content of a destination: nothing, an empty folder, a link to a state of this source, or foreign files. */
const standing = Effect.fnUntraced(function* (place: Place, id: string, destination: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const at = path.join(place.folder, destination)
  const states = yield* statesOf(place)
  const look = Effect.gen(function* () {
    const { type } = yield* fs.lstat(at)
    if (type === "SymbolicLink") {
      const target = path.resolve(path.dirname(at), yield* fs.readLink(at))
      return path.dirname(target) === states && path.basename(target).slice(0, -9) === id ? "own" : "foreign"
    }
    return type === "Directory" && (yield* fs.readDirectory(at)).length === 0 ? "empty" : "foreign"
  })
  return yield* Effect.catchReason(look, "PlatformError", "NotFound", () => Effect.succeed("free" as const))
})

/** Fails if a destination cannot be used: it has foreign files, or leads through a link. */
export const checkDestination = Effect.fnUntraced(function* (place: Place, id: string, destination: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const failed = Effect.mapError(cannot(`the destination \`${destination}\` cannot be used`))
  const parent = path.dirname(path.join(place.folder, destination))
  yield* failed(fs.makeDirectory(parent, { recursive: true }))
  const root = yield* failed(fs.realPath(place.folder))
  if ((yield* failed(fs.realPath(parent))) !== path.join(root, path.dirname(destination))) {
    return yield* new SyncFailed({
      reason: `the destination \`${destination}\` leads through a symbolic link`
    })
  }
  const found = yield* failed(standing(place, id, destination))
  if (found === "foreign") {
    return yield* new SyncFailed({
      reason: `the destination \`${destination}\` holds what this source has not put there; move it away, or name another`
    })
  }
  return found
})

/** Links the destination of a state to it, in place of the earlier one. */
export const link = Effect.fnUntraced(function* (place: Place, { destination, folder, id }: State) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const failed = Effect.mapError(cannot(`the destination \`${destination}\` cannot be replaced`))
  const found = yield* checkDestination(place, id, destination)
  const at = path.join(place.folder, destination)
  const aside = path.join(yield* statesOf(place), `link.${yield* random}`)
  yield* failed(fs.symlink(path.relative(path.dirname(at), folder), aside))
  if (found === "empty") yield* failed(fs.remove(at, { recursive: true }))
  yield* failed(fs.rename(aside, at))
})

/** Removes the link at the destination of a state; keeps anything else. */
export const unlink = Effect.fnUntraced(
  function* (place: Place, { destination, id }: State) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    if ((yield* standing(place, id, destination)) !== "own") return
    yield* fs.remove(path.join(place.folder, destination))
  },
  Effect.mapError(cannot("its folder cannot be removed"))
)

/** Removes all states that are not in use. */
export const sweep = Effect.fnUntraced(function* (place: Place) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const used = new Set((yield* statesInUse(place)).map(({ folder }) => folder))
  const states = yield* statesOf(place)
  const names = yield* Effect.mapError(namesIn(states), cannot(CANNOT_SWEEP))
  yield* Effect.forEach(
    names.map((name) => path.join(states, name)).filter((state) => !used.has(state)),
    (state) => Effect.mapError(fs.remove(state, { recursive: true, force: true }), cannot(CANNOT_SWEEP)),
    { discard: true }
  )
})

const CANNOT_SWEEP = "former states of sources cannot be removed"

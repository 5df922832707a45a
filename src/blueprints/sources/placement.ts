/**
 * The files of sources on disk. Each state of a source is a folder below `.muster-sources` (which the stores do not
 * read), and the destination is a link to it. One rename changes the link, so a destination never has half of a state.
 */
import { Effect, FileSystem, Path } from "effect"
import { cannot, SyncFailed } from "./reasons.ts"

const HIDDEN = ".muster-sources"

/** The states of one service's sources below one definitions folder. */
export interface Place {
  /** The definitions folder. */
  readonly folder: string
  /** The data folder that made the states: another service may use the same definitions folder. */
  readonly owner: string
}

const statesOf = ({ folder, owner }: Place) =>
  Effect.map(Path.Path, (path) => path.join(folder, HIDDEN, owner))

const random = Effect.sync(() => crypto.randomUUID().slice(0, 8))

/** Makes an empty folder for a state of a source. */
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

/** The content of a destination: nothing, an empty folder, a state of this source, or foreign files. */
type Standing = "free" | "empty" | "foreign" | { readonly state: string }

const standing = Effect.fnUntraced(function* (place: Place, id: string, destination: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const at = path.join(place.folder, destination)
  const states = yield* statesOf(place)
  const look = Effect.gen(function* () {
    const { type } = yield* fs.lstat(at)
    if (type === "SymbolicLink") {
      const target = path.resolve(path.dirname(at), yield* fs.readLink(at))
      const ours = path.dirname(target) === states && path.basename(target).slice(0, -9) === id
      return ours ? { state: target } : "foreign"
    }
    return type === "Directory" && (yield* fs.readDirectory(at)).length === 0 ? "empty" : "foreign"
  })
  return yield* look.pipe(
    Effect.map((found): Standing => found),
    Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed<Standing>("free"))
  )
})

/** Returns the name of the state that a destination links to; undefined: the destination is not this source's. */
export const linkedState = (place: Place, id: string, destination: string) =>
  Effect.map(standing(place, id, destination), (found) =>
    typeof found === "object" ? found.state : undefined
  )

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

/** Links a destination to a state, in place of the earlier one. */
export const link = Effect.fnUntraced(function* (
  place: Place,
  id: string,
  destination: string,
  state: string
) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const failed = Effect.mapError(cannot(`the destination \`${destination}\` cannot be replaced`))
  const found = yield* checkDestination(place, id, destination)
  const at = path.join(place.folder, destination)
  const aside = path.join(yield* statesOf(place), `link.${yield* random}`)
  yield* failed(fs.symlink(path.relative(path.dirname(at), state), aside))
  if (found === "empty") yield* failed(fs.remove(at, { recursive: true }))
  yield* failed(fs.rename(aside, at))
})

/** Removes the link at a destination if it is this source's; keeps anything else. */
export const unlink = Effect.fnUntraced(
  function* (place: Place, id: string, destination: string) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    if ((yield* linkedState(place, id, destination)) === undefined) return
    yield* fs.remove(path.join(place.folder, destination))
  },
  Effect.mapError(cannot("its folder cannot be removed"))
)

/** Removes all states except the linked ones; returns their paths. */
export const sweep = Effect.fnUntraced(
  function* (place: Place, linked: ReadonlySet<string>) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const states = yield* statesOf(place)
    const names = yield* fs
      .readDirectory(states)
      .pipe(Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed<Array<string>>([])))
    yield* Effect.forEach(
      names.map((name) => path.join(states, name)).filter((state) => !linked.has(state)),
      (state) => fs.remove(state, { recursive: true, force: true }),
      { discard: true }
    )
  },
  Effect.mapError(cannot("former states of sources cannot be removed"))
)

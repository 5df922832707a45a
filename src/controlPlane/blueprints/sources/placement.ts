/** One rename links a destination to a folder below `.muster-sources`: no destination has half of a state. */
import { Data, Effect, FileSystem, Path, type PlatformError, Schema } from "effect"

/** The sync of a source failed; `reason` is one line, without secrets and without paths of this host. */
export class SyncFailed extends Data.TaggedError("SyncFailed")<{ readonly reason: string }> {
  override get message(): string {
    return this.reason
  }
}

const meanings: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is exceeded",
  EACCES: "permission denied",
  EPERM: "operation not permitted",
  EROFS: "the file system is read-only",
  ENAMETOOLONG: "a name is too long",
  ENOENT: "it does not exist",
  ENOTDIR: "a part of its path is no folder",
  EISDIR: "it is a folder",
  EEXIST: "there is something of that name already",
  EXDEV: "it is on another file system",
  EBUSY: "it is in use"
}

/** Returns why the file system refused an operation, in plain words and without the path. */
export const reasonOf = ({ reason }: PlatformError.PlatformError): string => {
  const cause: unknown = reason.cause
  const code: unknown =
    typeof cause === "object" && cause !== null && "code" in cause ? cause.code : undefined
  return (typeof code === "string" ? (meanings[code] ?? code) : undefined) ?? reason._tag
}

/** Maps an error of the file system to a failed sync: `<what>: <why>`. */
export const cannot =
  (what: string) =>
  (error: PlatformError.PlatformError): SyncFailed =>
    new SyncFailed({ reason: `${what}: ${reasonOf(error)}` })

const HIDDEN = ".muster-sources"

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

const random = Effect.sync(() => crypto.randomUUID().slice(0, 8))

/**
 * The states of one service's sources below one definitions folder.
 * @param owner the data folder that makes the states: another service may use the same definitions folder
 */
export const makePlace = Effect.fnUntraced(function* (root: string, owner: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const states = path.join(root, HIDDEN, owner)

  const makeState = Effect.fnUntraced(
    function* (id: string) {
      const state = path.join(states, `${id}.${yield* random}`)
      yield* fs.makeDirectory(state, { recursive: true })
      return state
    },
    Effect.mapError(cannot("its files cannot be written"))
  )

  /** Describes a state and syncs its files to the disk. */
  const finishState = Effect.fnUntraced(
    function* ({ folder, ...about }: State, files: ReadonlyArray<string>) {
      yield* fs.writeFileString(path.join(folder, ABOUT), Schema.encodeSync(About)(about))
      yield* Effect.forEach(
        [ABOUT, ...files],
        (file) => Effect.scoped(Effect.flatMap(fs.open(path.join(folder, file)), ({ sync }) => sync)),
        { concurrency: 16, discard: true }
      )
    },
    Effect.mapError(cannot("its files cannot be written"))
  )

  const names = Effect.catchReason(fs.readDirectory(states), "PlatformError", "NotFound", () =>
    Effect.succeed<Array<string>>([])
  )

  const none = () => Effect.succeed<Array<State>>([])
  const stateInUse = (name: string) =>
    Effect.gen(function* () {
      const folder = path.join(states, name)
      const text = yield* fs.readFileString(path.join(folder, ABOUT))
      const about = yield* Schema.decodeEffect(About)(text)
      const linked = yield* fs.realPath(path.join(root, about.destination))
      return linked === (yield* fs.realPath(folder)) ? [{ ...about, folder }] : []
    }).pipe(
      Effect.catchTag("SchemaError", none),
      // the destination or a part of its path is not there, or the part is no folder
      Effect.catchReasons("PlatformError", { NotFound: none, BadResource: none })
    )
  /** The states that their destinations link to. */
  const statesInUse = Effect.flatMap(names, Effect.forEach(stateInUse)).pipe(
    Effect.map((found) => found.flat()),
    Effect.mapError(cannot("the folders of sources cannot be looked at"))
  )

  /** The content of a destination: nothing, an empty folder, a link to a state of this source, or foreign files. */
  const standing = (id: string, destination: string) => {
    const at = path.join(root, destination)
    const look = Effect.gen(function* () {
      const { type } = yield* fs.lstat(at)
      if (type !== "SymbolicLink") {
        return type === "Directory" && (yield* fs.readDirectory(at)).length === 0 ? "empty" : "foreign"
      }
      const target = path.resolve(path.dirname(at), yield* fs.readLink(at))
      return path.dirname(target) === states && path.basename(target).slice(0, -9) === id ? "own" : "foreign"
    })
    return Effect.catchReason(look, "PlatformError", "NotFound", () => Effect.succeed("free" as const))
  }

  /** Fails if a destination cannot be used: it has foreign files, or leads through a link. */
  const checkDestination = Effect.fnUntraced(function* (id: string, destination: string) {
    const failed = Effect.mapError(cannot(`the destination \`${destination}\` cannot be used`))
    const parent = path.dirname(path.join(root, destination))
    yield* failed(fs.makeDirectory(parent, { recursive: true }))
    const real = yield* failed(fs.realPath(root))
    if ((yield* failed(fs.realPath(parent))) !== path.join(real, path.dirname(destination))) {
      return yield* new SyncFailed({
        reason: `the destination \`${destination}\` leads through a symbolic link`
      })
    }
    const found = yield* failed(standing(id, destination))
    if (found !== "foreign") return found
    return yield* new SyncFailed({
      reason: `the destination \`${destination}\` holds what this source has not put there; move it away, or name another`
    })
  })

  /** Links the destination of a state to it, in place of the earlier one. */
  const link = Effect.fnUntraced(function* ({ destination, folder, id }: State) {
    const failed = Effect.mapError(cannot(`the destination \`${destination}\` cannot be replaced`))
    const found = yield* checkDestination(id, destination)
    const at = path.join(root, destination)
    const aside = path.join(states, `link.${yield* random}`)
    yield* failed(fs.symlink(path.relative(path.dirname(at), folder), aside))
    if (found === "empty") yield* failed(fs.remove(at, { recursive: true }))
    yield* failed(fs.rename(aside, at))
  })

  /** Removes the link at the destination of a state; keeps anything else. */
  const unlink = ({ destination, id }: State) =>
    standing(id, destination).pipe(
      Effect.flatMap((found) => (found === "own" ? fs.remove(path.join(root, destination)) : Effect.void)),
      Effect.mapError(cannot("its folder cannot be removed"))
    )

  /** Removes all states that are not in use. */
  const sweep = Effect.gen(function* () {
    const failed = Effect.mapError(cannot("former states of sources cannot be removed"))
    const used = new Set((yield* statesInUse).map(({ folder }) => folder))
    for (const name of yield* failed(names)) {
      const state = path.join(states, name)
      if (!used.has(state)) yield* failed(fs.remove(state, { recursive: true, force: true }))
    }
  })

  return { makeState, finishState, statesInUse, checkDestination, link, unlink, sweep }
})
export type Place = Effect.Success<ReturnType<typeof makePlace>>

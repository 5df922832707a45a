/** Members of an archive as files in a hidden folder, each by the rules of the place that it gets later. */
import * as fs from "node:fs/promises"
import { Effect, Exit, Option, Scope, Stream } from "effect"
import { childPath, shownName, whyNoPath } from "../../contract/domain/Files.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import {
  LONGEST_TARGET,
  type Member,
  MOST_MEMBERS,
  refuseMember,
  shownMember,
  tooManyMembers
} from "../archives/member.ts"
import type { IoError } from "../disk/fsio.ts"
import {
  CREATE,
  chownLike,
  enter,
  io,
  isTemporary,
  lstatIn,
  open,
  type PathRefused,
  PERMISSIONS,
  within,
  writeAll
} from "../disk/safePath.ts"
import type { AccessError } from "./refused.ts"
import type { Room } from "./room.ts"
import type { Place, Site } from "./Site.ts"

/** The latest time that file systems and RFC 3339 have, in s. */
const LATEST = 253_402_300_799

export interface StageParts {
  readonly site: Site
  readonly room: Room
  /** Takes room for bytes and entries before they are written. */
  readonly take: (bytes: number, entries: number) => Effect.Effect<void, FileRefused | IoError>
  readonly tree: fs.FileHandle
  /** Where that folder will be. */
  readonly to: Place
  readonly owner: { readonly uid: number; readonly gid: number }
}

/** Returns the names of a member below the folder of the archive, or why it has none. */
const namesOf = (name: Buffer): ReadonlyArray<Buffer> | string => {
  if (name[0] === 0x2f) return "its path is absolute"
  const names: Array<Buffer> = []
  for (let from = 0; from <= name.length; ) {
    const slash = name.indexOf(0x2f, from)
    const end = slash === -1 ? name.length : slash
    const one = Buffer.from(name.subarray(from, end))
    const isDot = one.length === 1 && one[0] === 0x2e
    // Programs begin paths with `./` and end those of folders with `/`.
    if (!(isDot && names.length === 0) && !(one.length === 0 && end === name.length)) names.push(one)
    from = end + 1
  }
  return names
}

/** Returns why a link leads outside of the server, if so. `depth`: names of its folder below the root. */
export const whyOutside = (target: Buffer, depth: number): string | undefined => {
  const text = target.toString("latin1")
  if (text === "" || text.includes("\0") || target.length > LONGEST_TARGET) return "its target is no path"
  if (text.startsWith("/")) return "it is a link with an absolute target"
  const names = text.split("/").filter((name) => name !== "" && name !== ".")
  const down = names.findIndex((name) => name !== "..")
  const up = down === -1 ? names.length : down
  // A folder that is a link itself may lead up again.
  if (names.slice(up).includes("..")) return "it is a link with `..` after a name"
  return up > depth ? "it is a link that leads outside of the server" : undefined
}

interface OpenFolder {
  readonly name: Buffer
  readonly handle: fs.FileHandle
  readonly scope: Scope.Closeable
}

const isNamed = (folder: OpenFolder | undefined, name: Buffer) => folder?.name.equals(name) === true

export class Stage {
  readonly #parts: StageParts
  /** The folders on the way to the last member, from the outside inwards. */
  readonly #open: Array<OpenFolder> = []
  #made = 0

  private constructor(parts: StageParts) {
    this.#parts = parts
  }

  static readonly make = (parts: StageParts) =>
    Effect.acquireRelease(
      Effect.sync(() => new Stage(parts)),
      (stage) => stage.#leave(0)
    )

  /** Writes a member. @error FileRefused the archive is refused; its detail names the member */
  readonly add = Effect.fnUntraced(function* (
    this: Stage,
    member: Member
  ): Effect.fn.Return<void, AccessError> {
    const names = namesOf(member.name)
    if (typeof names === "string") return yield* refuseMember(member.name, names)
    const name = names.at(-1)
    // The folder of the archive itself.
    if (name === undefined) return
    const path = names.reduce((folder, one) => childPath(folder, shownName(one)), this.#parts.to.path)
    const place = yield* this.#allowed(member, path)
    yield* this.#write(member, { path, names, name, place }).pipe(
      Effect.catchTag("PathRefused", (error) => this.#inTheWay(member, error)),
      Effect.catchIf(
        (error) => error._tag === "IoError" && (error.code === "EEXIST" || error.code === "EISDIR"),
        () => this.#twice(member)
      )
    )
  })

  #twice({ name }: Member) {
    return refuseMember(name, "it is in the archive twice", "Pack the archive again, with each path once.")
  }

  #inTheWay({ name }: Member, { reason }: PathRefused) {
    return refuseMember(name, `it lies below another entry: ${reason}`, "Pack the archive again.")
  }

  /** Returns the place that a member gets, unless it is no path or the rules of the blueprint forbid it. */
  readonly #allowed = Effect.fnUntraced(function* (this: Stage, { kind, name }: Member, path: string) {
    const { site, to } = this.#parts
    const why = whyNoPath(path)
    if (why !== undefined)
      return yield* refuseMember(name, `its path ${why}`, "Rename it, then pack it again.")
    if (path.split("/").some(isTemporary))
      return yield* refuseMember(name, "such names are those of unfinished files")
    const forbidden = site.whyNotWritable(path)
    if (forbidden !== undefined) {
      return yield* new FileRefused({
        status: 403,
        detail: `archive entry ${shownMember(name)}: ${cleanText(path)}: ${forbidden}`,
        hint: "Remove it from the archive; the field files of the blueprint says what callers may write."
      })
    }
    const place = yield* site.place(path)
    if (place.parts.length === 0 && kind !== "folder")
      return yield* refuseMember(name, `a volume or mount lies at ${cleanText(path)}`)
    return place.shared === to.shared ? place : { ...place, parts: [] }
  })

  readonly #write = Effect.fnUntraced(function* (
    this: Stage,
    member: Member,
    at: {
      readonly path: string
      readonly names: ReadonlyArray<Buffer>
      readonly name: Buffer
      readonly place: Place
    }
  ) {
    const { names, name, path, place } = at
    const mode = member.mode === undefined ? undefined : member.mode & PERMISSIONS
    if (member.kind === "folder") {
      const folder = yield* this.#enter(path, names)
      if (mode !== undefined) yield* io(path, () => folder.chmod(mode | 0o700))
      return
    }
    const folder = yield* this.#enter(path, names.slice(0, -1))
    if (member.kind === "file") return yield* this.#file(path, { folder, name }, member)
    const why = whyOutside(member.target, Math.max(0, place.parts.length - 1))
    if (why !== undefined)
      return yield* refuseMember(member.name, why, "Make the link relative, or pack what it leads to.")
    yield* this.#take
    yield* io(path, () => fs.symlink(member.target, within(folder, name)))
    const { owner } = this.#parts
    if (process.geteuid?.() === 0)
      yield* io(path, () => fs.lchown(within(folder, name), owner.uid, owner.gid))
  })

  readonly #file = Effect.fnUntraced(function* (
    this: Stage,
    path: string,
    { folder, name }: { readonly folder: fs.FileHandle; readonly name: Buffer },
    { contents, mode = 0o644, mtime, size }: Member
  ) {
    const { owner, room, site, take, to } = this.#parts
    yield* room.fits(site, to, size, 1)
    yield* this.#take
    const file = yield* open(path, within(folder, name), CREATE, 0o600)
    yield* Stream.runForEach(contents, (bytes) =>
      Effect.andThen(take(bytes.length, 0), writeAll(path, file, bytes, null))
    )
    yield* chownLike(path, file, owner)
    yield* io(path, () => file.chmod(mode & PERMISSIONS))
    const time = Math.min(LATEST, Math.max(0, Number.isFinite(mtime) ? mtime : 0))
    yield* io(path, () => file.utimes(time, time))
  }, Effect.scoped)

  /** Opens a folder of the tree; missing ones are made. */
  readonly #enter = Effect.fnUntraced(function* (
    this: Stage,
    path: string,
    names: ReadonlyArray<Buffer>
  ): Effect.fn.Return<fs.FileHandle, AccessError> {
    let same = 0
    while (same < names.length && isNamed(this.#open[same], names[same] ?? Buffer.alloc(0))) same += 1
    yield* this.#leave(same)
    let folder = this.#open.at(-1)?.handle ?? this.#parts.tree
    for (const name of names.slice(same)) {
      const outer = folder
      if (Option.isNone(yield* lstatIn(path, outer, name))) yield* this.#take
      folder = yield* Effect.uninterruptible(this.#enterOne(path, outer, name))
    }
    return folder
  })

  readonly #enterOne = Effect.fnUntraced(function* (
    this: Stage,
    path: string,
    outer: fs.FileHandle,
    name: Buffer
  ) {
    const scope = Scope.makeUnsafe()
    const entered = yield* enter(path, outer, name, () => {}).pipe(
      Scope.provide(scope),
      Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
    )
    // A missing folder was made.
    if (Option.isNone(entered)) return outer
    this.#open.push({ name, handle: entered.value, scope })
    return entered.value
  })

  #leave(depth: number): Effect.Effect<void> {
    return Effect.forEach(
      this.#open.splice(depth).toReversed(),
      ({ scope }) => Scope.close(scope, Exit.void),
      { discard: true }
    )
  }

  /** Counts an entry that is made: folders that no member names are bounded, too. */
  get #take(): Effect.Effect<void, FileRefused | IoError> {
    return Effect.suspend(() => {
      this.#made += 1
      return this.#made > MOST_MEMBERS ? Effect.fail(tooManyMembers()) : this.#parts.take(0, 1)
    })
  }
}

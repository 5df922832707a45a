/** The replacement of the base below the files of a server, whose own files stay. */

import { isUtf8 } from "node:buffer"
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import type { FilePlan, Target } from "../../contract/domain/filePlan.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import {
  entryPath,
  forEachEntry,
  IoError,
  io,
  isEmptyFolder,
  lstat,
  makeFolder,
  openFile
} from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { building, carryOver, cleanFiles, recoverFiles, swapIn } from "./carryOver.ts"
import { copyIntoShared } from "./copyInside.ts"
import { copyTree } from "./copyTree.ts"
import { addCopies, addVolumes, type Creation } from "./createFiles.ts"
import { type FileContext, likelyKind } from "./fileContext.ts"
import { unmountBelow } from "./mounts.ts"
import { type BaseFolder, makeFolderLike, withBase } from "./overlayTree.ts"
import { chownParts, foreignParts, ownerFor } from "./owners.ts"
import { instanceFolder } from "./sharedFiles.ts"
import { kindAt } from "./sources.ts"
import {
  plainBase,
  readTreeRecord,
  recordPlainBase,
  settlePlainBase,
  TREE,
  writeTreeRecord
} from "./treeRecord.ts"

const CHUNK = 1024 * 1024

const sameBytes = Effect.fnUntraced(function* (one: string, other: string) {
  const [a, b] = [yield* openFile(one, "r"), yield* openFile(other, "r")]
  const [left, right] = [Buffer.alloc(CHUNK), Buffer.alloc(CHUNK)]
  for (let at = 0; ; ) {
    const [x, y] = yield* Effect.all([
      io(`read ${one}`, () => a.read(left, 0, CHUNK, at)),
      io(`read ${other}`, () => b.read(right, 0, CHUNK, at))
    ])
    if (x.bytesRead !== y.bytesRead) return false
    if (x.bytesRead === 0) return true
    if (!left.subarray(0, x.bytesRead).equals(right.subarray(0, y.bytesRead))) return false
    at += x.bytesRead
  }
}, Effect.scoped)

/** Whether an entry of an instance equals the base's entry; folders never do. */
const isSame = Effect.fnUntraced(function* (own: string, stats: Stats, base: string | undefined) {
  const there = base === undefined ? undefined : yield* lstat(base)
  if (base === undefined || there === undefined) return false
  if (stats.isSymbolicLink() && there.isSymbolicLink()) {
    const [to, from] = yield* Effect.all([io(own, () => fs.readlink(own)), io(base, () => fs.readlink(base))])
    return to === from
  }
  return stats.isFile() && there.isFile() && stats.size === there.size && (yield* sameBytes(own, base))
})

const isFolder = (path: string | undefined) =>
  path === undefined ? Effect.succeed(false) : Effect.map(lstat(path), (it) => it?.isDirectory() === true)

const isThere = (path: string | undefined) =>
  path === undefined ? Effect.succeed(false) : Effect.map(lstat(path), (it) => it !== undefined)

/** Makes hard links to the files of an entry, whose name and contents may have any bytes. */
const linkAll = (from: Buffer, to: Buffer): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const stats = yield* lstat(from)
    if (stats === undefined) return
    if (!stats.isDirectory()) return yield* io(`link ${to}`, () => fs.link(from, to))
    yield* makeFolderLike(to, from)
    yield* forEachEntry(from, ({ name }) => linkAll(entryPath(from, name), entryPath(to, name)))
    yield* io(`set times of ${to}`, () => fs.utimes(to, stats.atime, stats.mtime))
  })

export interface RebaseOptions {
  /** The files of the instance. Requires that nothing is mounted there and no process runs. */
  readonly own: string
  readonly old: string | undefined
  readonly next: string | undefined
  /** The folder to make; files of the server are hard links there, so they take no space. */
  readonly target: string
  readonly owner: RunUser | undefined
}

/** Fills `target`: unchanged files follow the new base, and others stay. Returns the number of entries. */
export const rebase = ({ next, old, own, owner, target }: RebaseOptions): Effect.Effect<number, IoError> =>
  Effect.gen(function* () {
    yield* makeFolderLike(target, own)
    let entries = 0
    const replace = Effect.fnUntraced(function* (name: string) {
      const [from, to] = [join(own, name), join(target, name)]
      const at = (base: string | undefined) => (base === undefined ? undefined : join(base, name))
      const [before, after] = [at(old), at(next)]
      const stats = yield* lstat(from)
      if (stats === undefined) return
      if (stats.isDirectory()) {
        const [wasFolder, isNext] = [yield* isFolder(before), yield* isFolder(after)]
        const left = yield* rebase({
          own: from,
          old: wasFolder ? before : undefined,
          next: isNext ? after : undefined,
          target: to,
          owner
        })
        // A folder of the old base in which the server has nothing of its own.
        if (left > 0 || isNext || !wasFolder) {
          entries++
          return
        }
        yield* io(`remove ${to}`, () => fs.rmdir(to))
      } else if (!(yield* isSame(from, stats, before)) || (yield* isSame(from, stats, after))) {
        yield* io(`link ${to}`, () => fs.link(from, to))
        entries++
        return
      }
      if (after === undefined || !(yield* isThere(after))) return
      yield* copyTree(after, to, { owner })
      entries++
    })
    yield* forEachEntry(own, ({ name }) => {
      if (isUtf8(name)) return replace(String(name))
      // No base has such names.
      entries++
      return linkAll(entryPath(own, name), entryPath(target, name))
    })
    if (next !== undefined) {
      yield* forEachEntry(
        next,
        Effect.fnUntraced(function* (entry) {
          const name = String(entry.name)
          if (yield* isThere(join(own, name))) return
          // The server has deleted what was in the old base.
          if (old !== undefined && (yield* isThere(join(old, name)))) return
          yield* copyTree(join(next, name), join(target, name), { owner })
          entries++
        })
      )
    }
    const { atime, mtime } = yield* io(`stat ${own}`, () => fs.stat(own))
    yield* io(`set times of ${target}`, () => fs.utimes(target, atime, mtime))
    return entries
  })

export interface DefinitionStep {
  readonly from: ServerSpec
  readonly to: ServerSpec
}

/** `make`: for a server without files. */
export const makeBaseChanges = (context: FileContext, make: Creation) => {
  const { at, limits, planOf, present, sources } = context

  const renew = Effect.fn("InstanceFiles.renew")(function* (
    folder: string,
    base: BaseFolder,
    spec: ServerSpec,
    user?: RunUser
  ) {
    yield* recoverFiles(folder)
    const tree = join(folder, TREE)
    const files = instanceFolder(folder)
    const record = yield* readTreeRecord(tree)
    const empty = record === undefined && (yield* isEmptyFolder(files))
    if (empty) return yield* make(folder, base, spec, user) // a failed installation left no files
    yield* cleanFiles(folder)
    const restore = Effect.ignore(present(folder, spec, likelyKind(spec), user))
    const owner = ownerFor(user)
    // Unmounted first: no file of the base is written into shared folders.
    yield* unmountBelow(folder)
    if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
    if (record === undefined) {
      yield* Effect.onError(copyTree(base.folder, files, { owner }), () => restore)
      yield* recordPlainBase(folder, files, base.generation)
    } else {
      yield* carryOver({
        folder,
        record: yield* withBase(record, base),
        prepare: (tree) => limits.begin(folder, spec, tree),
        oldBase: join(at.generations, record.base),
        newBase: base.folder,
        owner
      }).pipe(Effect.onError(() => restore))
    }
    yield* present(folder, spec, likelyKind(spec), user)
  })

  const rebasePlain = Effect.fnUntraced(function* (
    folder: string,
    base: BaseFolder,
    to: ServerSpec,
    owner: RunUser | undefined
  ) {
    const files = instanceFolder(folder)
    const generation = yield* plainBase(folder, files)
    if (generation === base.generation) return
    const old = generation === undefined ? undefined : join(at.generations, generation)
    if (generation === undefined || old === undefined || !(yield* lstat(old))?.isDirectory()) {
      return yield* new IoError({
        code: "REFUSED",
        message:
          "the base from which the files of the server were made is gone, so that its own files cannot be told apart",
        next: "save the files of the base that were edited, which a reinstallation replaces"
      })
    }
    const { files: target } = building(folder)
    yield* recordPlainBase(folder, files, generation)
    yield* Effect.gen(function* () {
      yield* makeFolder(target)
      yield* limits.begin(folder, to, target)
      yield* rebase({ own: files, old, next: base.folder, target, owner })
      yield* recordPlainBase(folder, target, base.generation)
    }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
    yield* swapIn(folder, false).pipe(
      Effect.onError(() => Effect.ignore(recoverFiles(folder))),
      Effect.uninterruptible
    )
    yield* cleanFiles(folder)
    yield* settlePlainBase(folder, files)
  })

  /** Adds copies and `cow` volumes that an earlier plan did not have. */
  const addTemplates = Effect.fnUntraced(function* (folder: string, before: FilePlan, plan: FilePlan) {
    const files = instanceFolder(folder)
    const had = new Set([...before.cow, ...before.copies].map(({ parts }) => parts.join("/")))
    const isNew = Effect.fnUntraced(function* ({ parts }: Target) {
      if (had.has(parts.join("/"))) return false
      return (yield* kindAt(files, parts)) === "none"
    })
    yield* addVolumes(files, yield* Effect.filter(plan.cow, isNew), sources)
    const added = { ...plan, copies: yield* Effect.filter(plan.copies, isNew) }
    yield* addCopies(files, added, sources)
    yield* copyIntoShared(added, sources)
  })

  const upgrade = Effect.fn("InstanceFiles.upgrade")(function* (
    folder: string,
    base: BaseFolder,
    { from, to }: DefinitionStep,
    user?: RunUser
  ) {
    yield* recoverFiles(folder)
    const tree = join(folder, TREE)
    const files = instanceFolder(folder)
    const record = yield* readTreeRecord(tree)
    const empty = record === undefined && (yield* isEmptyFolder(files))
    if (empty) return yield* make(folder, base, to, user) // a failed installation left no files
    const plan = yield* planOf(to, "create")
    // A source of the earlier definition may be gone.
    const before = yield* Effect.catch(planOf(from, "create"), () => planOf(from))
    yield* cleanFiles(folder)
    yield* unmountBelow(folder)
    const owner = ownerFor(user)
    if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
    const replace = Effect.gen(function* () {
      if (record === undefined) yield* rebasePlain(folder, base, to, owner)
      else if (record.base !== base.generation) {
        // The layer of the server stays over the new base.
        yield* writeTreeRecord(tree, yield* withBase(record, base))
      }
    })
    yield* Effect.onError(replace, () => Effect.ignore(present(folder, from, likelyKind(from), user)))
    yield* present(folder, to, likelyKind(to), user)
    yield* addTemplates(folder, before, plan)
  })

  return { renew, upgrade }
}

/** The replacement of the base below the files of a server, whose own files stay. */

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
import { copyIntoShared } from "./copyInside.ts"
import { copyTree, type Path } from "./copyTree.ts"
import { addCopies, addVolumes, type Creation } from "./createFiles.ts"
import { type FileContext, likelyKind, present } from "./fileContext.ts"
import { unmountBelow } from "./mounts.ts"
import { type BaseFolder, makeFolderLike, withBase } from "./overlayTree.ts"
import { chownParts, foreignParts, ownerFor } from "./owners.ts"
import { instanceFolder } from "./sharedFiles.ts"
import { kindAt } from "./sources.ts"
import { building, cleanFiles, keepOwn, recoverFiles, swapIn } from "./swapFiles.ts"
import {
  plainBase,
  readTreeRecord,
  recordPlainBase,
  TREE,
  type TreeRecord,
  writeTreeRecord
} from "./treeRecord.ts"

const CHUNK = 1024 * 1024

const sameBytes = Effect.fnUntraced(function* (one: Path, other: Path) {
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
export const isSame = Effect.fnUntraced(function* (own: Path, stats: Stats, base: Path | undefined) {
  const there = base === undefined ? undefined : yield* lstat(base)
  if (base === undefined || there === undefined) return false
  if (stats.isSymbolicLink() && there.isSymbolicLink()) {
    const [to, from] = yield* Effect.all([
      io(`read ${own}`, () => fs.readlink(own, "buffer")),
      io(`read ${base}`, () => fs.readlink(base, "buffer"))
    ])
    return to.equals(from)
  }
  return stats.isFile() && there.isFile() && stats.size === there.size && (yield* sameBytes(own, base))
})

export const isFolder = (path: Path | undefined) =>
  path === undefined ? Effect.succeed(false) : Effect.map(lstat(path), (it) => it?.isDirectory() === true)

const isThere = (path: Path | undefined) =>
  path === undefined ? Effect.succeed(false) : Effect.map(lstat(path), (it) => it !== undefined)

export interface RebaseOptions {
  /** The files of the instance. Requires that nothing is mounted there and no process runs. */
  readonly own: Path
  readonly old: Path | undefined
  readonly next: Path | undefined
  /** The folder to make; files of the server are hard links there, so they take no space. */
  readonly target: Path
  readonly owner: RunUser | undefined
}

/** Fills `target`: unchanged files follow the new base, and others stay. Returns the number of entries. */
const rebase = ({ next, old, own, owner, target }: RebaseOptions): Effect.Effect<number, IoError> =>
  Effect.gen(function* () {
    yield* makeFolderLike(target, own)
    let entries = 0
    const at = (folder: Path | undefined, name: Buffer) =>
      folder === undefined ? undefined : entryPath(folder, name)
    const copyOfBase = Effect.fnUntraced(function* (from: Buffer | undefined, to: Buffer) {
      if (from === undefined || !(yield* isThere(from))) return
      yield* copyTree(from, to, { owner })
      entries++
    })
    yield* forEachEntry(
      own,
      Effect.fnUntraced(function* ({ name }) {
        const [from, to] = [entryPath(own, name), entryPath(target, name)]
        const [before, after] = [at(old, name), at(next, name)]
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
        yield* copyOfBase(after, to)
      })
    )
    if (next !== undefined) {
      yield* forEachEntry(
        next,
        Effect.fnUntraced(function* ({ name }) {
          // The server has deleted what was in the old base.
          if ((yield* isThere(entryPath(own, name))) || (yield* isThere(at(old, name)))) return
          yield* copyOfBase(entryPath(next, name), entryPath(target, name))
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
  const { at, limits, planOf } = context

  /** Replaces the base by `replace` while nothing is mounted. Returns false for a server without files, which are made. */
  const change = Effect.fnUntraced(function* (
    folder: string,
    base: BaseFolder,
    { from, to }: DefinitionStep,
    user: RunUser | undefined,
    replace: (record: TreeRecord | undefined, owner: RunUser | undefined) => Effect.Effect<void, IoError>
  ) {
    yield* recoverFiles(folder)
    const files = instanceFolder(folder)
    const record = yield* readTreeRecord(join(folder, TREE))
    if (record === undefined && (yield* isEmptyFolder(files))) {
      yield* make(folder, base, to, user) // a failed installation left no files
      return false
    }
    yield* cleanFiles(folder)
    // Unmounted first: no file of the base is written into shared folders.
    yield* unmountBelow(folder)
    const owner = ownerFor(user)
    if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
    yield* Effect.onError(replace(record, owner), () =>
      Effect.ignore(present(context, folder, from, likelyKind(from), user))
    )
    yield* present(context, folder, to, likelyKind(to), user)
    return true
  })

  const renew = Effect.fn("InstanceFiles.renew")(function* (
    folder: string,
    base: BaseFolder,
    spec: ServerSpec,
    user?: RunUser
  ) {
    yield* change(
      folder,
      base,
      { from: spec, to: spec },
      user,
      Effect.fnUntraced(function* (record, owner) {
        if (record === undefined) {
          yield* copyTree(base.folder, instanceFolder(folder), { owner })
          return yield* recordPlainBase(folder, base.generation)
        }
        const renewed = writeTreeRecord(join(folder, TREE), yield* withBase(record, base))
        yield* keepOwn(folder, base.folder, owner, renewed)
      })
    )
  })

  const rebasePlain = Effect.fnUntraced(function* (
    folder: string,
    base: BaseFolder,
    to: ServerSpec,
    owner: RunUser | undefined
  ) {
    const generation = yield* plainBase(folder)
    if (generation === base.generation) return
    const old = generation === undefined ? undefined : join(at.generations, generation)
    if (old === undefined || !(yield* isFolder(old))) {
      return yield* new IoError({
        code: "REFUSED",
        message:
          "the base from which the files of the server were made is gone, so that its own files cannot be told apart",
        next: "save the files of the base that were edited, which a reinstallation replaces"
      })
    }
    const { files: target } = building(folder)
    yield* Effect.gen(function* () {
      yield* makeFolder(target)
      yield* limits.begin(folder, to, target)
      yield* rebase({ own: instanceFolder(folder), old, next: base.folder, target, owner })
    }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
    yield* swapIn(folder, false).pipe(
      Effect.onError(() => Effect.ignore(recoverFiles(folder))),
      Effect.uninterruptible
    )
    yield* recordPlainBase(folder, base.generation)
    yield* cleanFiles(folder)
  })

  /** Adds copies and `cow` volumes that an earlier plan did not have. */
  const addTemplates = Effect.fnUntraced(function* (folder: string, before: FilePlan, plan: FilePlan) {
    const files = instanceFolder(folder)
    const had = new Set([...before.cow, ...before.copies].map(({ parts }) => parts.join("/")))
    const isNew = Effect.fnUntraced(function* ({ parts }: Target) {
      if (had.has(parts.join("/"))) return false
      return (yield* kindAt(files, parts)) === "none"
    })
    yield* addVolumes(files, yield* Effect.filter(plan.cow, isNew), at.sources)
    const added = { ...plan, copies: yield* Effect.filter(plan.copies, isNew) }
    yield* addCopies(files, added, at.sources)
    yield* copyIntoShared(added, at.sources)
  })

  const upgrade = Effect.fn("InstanceFiles.upgrade")(function* (
    folder: string,
    base: BaseFolder,
    step: DefinitionStep,
    user?: RunUser
  ) {
    const plan = yield* planOf(step.to, "create")
    // A source of the earlier definition may be gone.
    const before = yield* Effect.catch(planOf(step.from, "create"), () => planOf(step.from))
    const isChanged = yield* change(
      folder,
      base,
      step,
      user,
      Effect.fnUntraced(function* (record, owner) {
        if (record === undefined) return yield* rebasePlain(folder, base, step.to, owner)
        // The layer of the server stays over the new base.
        if (record.base !== base.generation)
          yield* writeTreeRecord(join(folder, TREE), yield* withBase(record, base))
      })
    )
    if (isChanged) yield* addTemplates(folder, before, plan)
  })

  return { renew, upgrade }
}

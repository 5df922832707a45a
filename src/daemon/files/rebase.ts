/** A copy of a new base with the files that a server has changed, added or deleted since its old base. */
import { isUtf8 } from "node:buffer"
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { entryPath, forEachEntry, type IoError, io, lstat, openFile } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copyTree } from "./copyTree.ts"
import { makeFolderLike } from "./overlayTree.ts"

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

/** Whether an entry of an instance equals that of a base; folders never do. */
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

/**
 * Fills `target`: a file that equals that of the old base is replaced by that of the new base, or removed with it; what
 * the server has changed, added or deleted stays as it is. Returns the number of entries.
 */
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

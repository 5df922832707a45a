import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { IoError, io, listFolder, lstat, removeTree } from "./fsio.ts"

/** Files of one folder that are copied at the same time. */
const WIDTH = 8

/** Where a target is a link or of another kind it gives way; nothing is ever written through a link. */
const clear = Effect.fnUntraced(function* (target: string, folder: boolean) {
  const there = yield* lstat(target)
  if (there === undefined || (folder && there.isDirectory())) return there
  yield* removeTree(target)
  return undefined
})

const copyOne = Effect.fnUntraced(function* (source: string, target: string, stats: Stats) {
  if (stats.isSymbolicLink()) {
    yield* clear(target, false)
    const to = yield* io(`read link ${source}`, () => fs.readlink(source))
    yield* io(`create link ${target}`, () => fs.symlink(to, target))
    return
  }
  if (!stats.isFile()) {
    return yield* new IoError({ code: "EINVAL", message: `neither file nor folder nor link: ${source}` })
  }
  yield* clear(target, false)
  // Shares the blocks where the file system can, copies inside the kernel where it cannot.
  yield* io(`copy ${source}`, () => fs.copyFile(source, target, constants.COPYFILE_FICLONE))
})

/**
 * Copies a file or folder with its permissions; links are copied as links. What is at the target already is kept
 * where the source has nothing of the name and replaced where it has. Pipes, sockets and devices are refused.
 */
export const copyTree = (source: string, target: string): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const stats = yield* io(`look at ${source}`, () => fs.lstat(source))
    if (!stats.isDirectory()) return yield* copyOne(source, target, stats)
    const there = yield* clear(target, true)
    if (there === undefined) yield* io(`create folder ${target}`, () => fs.mkdir(target, { mode: 0o700 }))
    const names = yield* listFolder(source)
    yield* Effect.forEach(names, (name) => copyTree(join(source, name), join(target, name)), {
      concurrency: WIDTH,
      discard: true
    })
    yield* io(`set permissions of ${target}`, () => fs.chmod(target, stats.mode & 0o7777))
  })

/** Bytes that a tree takes, links and other names of the same file counted once; what vanishes meanwhile counts 0. */
export const treeBytes = Effect.fnUntraced(function* (root: string) {
  const seen = new Set<string>()
  let bytes = 0
  const walk = (path: string): Effect.Effect<void, IoError> =>
    Effect.gen(function* () {
      const stats = yield* lstat(path)
      if (stats === undefined) return
      if (stats.nlink > 1 && !stats.isDirectory()) {
        const key = `${stats.dev}:${stats.ino}`
        if (seen.has(key)) return
        seen.add(key)
      }
      if (!stats.isDirectory()) {
        bytes += stats.size
        return
      }
      const names = yield* listFolder(path)
      yield* Effect.forEach(names, (name) => walk(join(path, name)), { concurrency: WIDTH, discard: true })
    })
  yield* walk(root)
  return bytes
})

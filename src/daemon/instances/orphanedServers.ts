/**
 * Orphaned servers: instances of this node that the control plane has no record of, or has on another node. Their folders
 * are kept for operators, and never removed here.
 *
 *     lost/<server id>[-n]        the folder of the server; `files` has the files that it wrote
 *     lost/<server id>[-n].json   the note: the server, and the reason
 */

import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect, Schema } from "effect"
import { Allocations } from "../../contract/domain/Allocation.ts"
import { NodeId, ServerId } from "../../contract/domain/Id.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { ServerDefinition } from "../../contract/domain/ServerDefinition.ts"
import {
  entryPath,
  forEachEntry,
  type IoError,
  io,
  isEmptyFolder,
  listFolder,
  lstat,
  makeClosedFolder,
  orMissing,
  readText,
  rename,
  syncFolder
} from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { makeFolderLike, overOf } from "../files/overlayTree.ts"
import { instanceFolder } from "../files/sharedFiles.ts"
import { recoverFiles } from "../files/swapFiles.ts"
import { generationsDir, readTreeRecord, TREE } from "../files/treeRecord.ts"
import { FOLDERS } from "../host/dataFolder.ts"
import type { InstanceState } from "../state/InstanceState.ts"

export const hasFiles = Effect.fnUntraced(function* (folder: string) {
  if ((yield* readTreeRecord(join(folder, TREE))) !== undefined) return true
  return !(yield* isEmptyFolder(instanceFolder(folder)))
})

/** Returns the place of a nested layer in the surrounding one, unless another entry is in the way. */
const placeOf = Effect.fnUntraced(function* (upper: string, target: ReadonlyArray<string>) {
  let place = upper
  for (const [index, part] of target.entries()) {
    place = join(place, part)
    const stats = yield* lstat(place)
    const last = index === target.length - 1
    if (stats === undefined && !last) yield* makeFolderLike(place, upper)
    else if (stats !== undefined && !stats.isDirectory()) return undefined
  }
  return (yield* isEmptyFolder(place)) ? place : undefined
})

/** Removes the marks of overlayfs for removed files of lower layers, which mean nothing in another folder. */
const removeWhiteouts = (folder: Buffer): Effect.Effect<void, IoError> =>
  forEachEntry(
    folder,
    Effect.fnUntraced(function* (entry) {
      const path = entryPath(folder, entry.name)
      if (entry.isDirectory()) yield* removeWhiteouts(path)
      if (!entry.isCharacterDevice()) return
      const { rdev } = yield* io(`stat ${path}`, () => fs.lstat(path))
      if (rdev === 0) yield* io(`remove ${path}`, () => fs.unlink(path))
    })
  )

/** Moves a server's files into `files`, repeatably. Returns volumes whose layers stay for a conflict. */
const mergeOwnFiles = Effect.fnUntraced(function* (folder: string) {
  yield* recoverFiles(folder)
  const tree = join(folder, TREE)
  const upper = join(tree, "upper")
  const record = yield* readTreeRecord(tree)
  const left: Array<string> = []
  if (record === undefined || (yield* lstat(upper)) === undefined) return left
  for (const [index, { target }] of record.nested.entries()) {
    const own = join(overOf(tree, index), "upper")
    if ((yield* lstat(own)) === undefined) continue
    const place = yield* placeOf(upper, target)
    if (place === undefined) left.push(target.join("/"))
    else yield* rename(own, place)
  }
  yield* removeWhiteouts(Buffer.from(upper))
  yield* rename(upper, instanceFolder(folder))
  return left
})

/**
 * - `unknown`   the database of the control plane has no record of the server
 * - `elsewhere` according to the database, the server is on `node_id`
 * - `moved`     the server is on another node, but was in use here
 */
export type Departure =
  | { readonly why: "unknown" | "moved" }
  | { readonly why: "elsewhere"; readonly node_id: NodeId }

const Note = Schema.Struct({
  format: Schema.Literal(1),
  server_id: ServerId,
  why: Schema.Literals(["unknown", "elsewhere", "moved"]),
  /** The node according to the database. */
  node_id: Schema.optionalKey(NodeId),
  /** RFC 3339 UTC. */
  at: Schema.String,
  /** The base folder below the files, in the folder of the node, unless the files include it. */
  base: Schema.optionalKey(Schema.String),
  allocations: Allocations,
  definition: ServerDefinition
})
type Note = typeof Note.Type

const NoteJson = Schema.fromJsonString(Note)
const decode = Schema.decodeUnknownEffect(NoteJson)
const encode = Schema.encodeUnknownEffect(Note)

/** The name of the note until all files are in place. */
const UNFINISHED = "lost.json"

export interface OrphanedServersOptions {
  readonly lostDir: string
  /** The folder of those on another file system; see {@link besideServers}. */
  readonly nearDir: string
}

/** Returns the folder of orphaned servers on the file system of the servers. */
export const besideServers = (serversDir: string): string => join(serversDir, ".lost")

/** Whether the files of a server are kept: it is saved, and was installed once. */
export const isKept = ({ held, install, spec, work }: InstanceState, { why }: Departure): boolean => {
  if (!spec.definition.save || work === "install") return false
  // After a migration, the files are complete on the other node; an incomplete copy was never used here.
  return why !== "moved" || (held !== true && install.phase === "ready")
}

const reasonOf = ({ node_id, server_id, why }: Pick<Note, "node_id" | "server_id" | "why">): string => {
  switch (why) {
    case "unknown":
      return `the control plane's database has no record of ${server_id}`
    case "elsewhere":
      return `according to the control plane's database, ${server_id} is on node ${node_id}`
    case "moved":
      return `${server_id} is on another node, but was in use here`
  }
}

/** Merges the files of a folder in `dir`, logs it, and writes its note. An interrupted run can be repeated. */
const finish = Effect.fnUntraced(function* (dir: string, name: string, reason: string) {
  const folder = join(dir, name)
  const unmerged = yield* Effect.catch(mergeOwnFiles(folder), (error) =>
    Effect.as(Effect.logError(`the files in ${folder} are not merged: ${error.message}`), [])
  )
  if (unmerged.length > 0) {
    yield* Effect.logWarning(
      `files of ${unmerged.join(", ")} are in ${folder}/${TREE}/over.*/upper, not in ${folder}/files`
    )
  }
  yield* Effect.logWarning(
    `${reason}: the server is stopped, and its files are kept in ${folder}/files. To recover it, copy them to a new server (docs/database.md, "Recover an orphan"); else remove ${folder}`
  )
  yield* rename(join(folder, UNFINISHED), `${folder}.json`).pipe(orMissing(undefined))
  yield* syncFolder(dir)
})

const finishInterrupted = Effect.fnUntraced(function* (dir: string, name: string) {
  const folder = join(dir, name)
  if ((yield* lstat(folder))?.isDirectory() !== true) return
  const text = yield* readText(join(folder, UNFINISHED)).pipe(orMissing(undefined))
  if (text === undefined) return
  const reason = yield* Effect.match(decode(text), {
    onSuccess: reasonOf,
    onFailure: () => `the control plane has no record of ${name}`
  })
  yield* finish(dir, name, reason)
})

const freeName = Effect.fnUntraced(function* (dir: string, id: ServerId) {
  const names = new Set(yield* listFolder(dir))
  for (let n = 1; ; n++) {
    const name = n === 1 ? id : `${id}-${n}`
    if (!names.has(name) && !names.has(`${name}.json`)) return name
  }
})

const moveTo = Effect.fnUntraced(function* (dir: string, folder: string, id: ServerId) {
  yield* makeClosedFolder(dir)
  const name = yield* freeName(dir, id)
  yield* rename(folder, join(dir, name))
  return { dir, name }
})

const writeNote = Effect.fnUntraced(function* (folder: string, state: InstanceState, departure: Departure) {
  const record = yield* readTreeRecord(join(folder, TREE))
  const note: Note = {
    format: 1,
    server_id: state.spec.id,
    ...departure,
    at: yield* nowText,
    ...(record === undefined ? {} : { base: join(generationsDir(FOLDERS.base), record.base) }),
    allocations: state.spec.allocations,
    definition: state.spec.definition
  }
  // The note has the type of the schema.
  const text = JSON.stringify(yield* Effect.orDie(encode(note)), null, 2)
  yield* writeAtomic(join(folder, UNFINISHED), `${text}\n`)
  yield* syncFolder(folder)
})

export const makeOrphanedServers = ({ lostDir, nearDir }: OrphanedServersOptions) => ({
  /** Moves the folder of a server to the orphaned servers. Requires that nothing is mounted and no process runs. */
  keep: Effect.fnUntraced(
    function* (folder: string, state: InstanceState, departure: Departure): Effect.fn.Return<void, IoError> {
      const { id } = state.spec
      // A full disk must not lose the server; its state has the same information.
      yield* Effect.catch(writeNote(folder, state, departure), (error) =>
        Effect.logWarning(`the note of the server cannot be written: ${error.message}`)
      )
      const { dir, name } = yield* moveTo(lostDir, folder, id).pipe(
        Effect.catchIf(
          (error) => error.code === "EXDEV",
          () => moveTo(nearDir, folder, id)
        )
      )
      yield* syncFolder(dirname(folder)).pipe(
        Effect.andThen(syncFolder(dir)),
        Effect.andThen(finish(dir, name, reasonOf({ server_id: id, ...departure }))),
        Effect.catch((error) => Effect.logError(`${join(dir, name)}: ${error.message}`))
      )
    },
    (effect, _, { spec }) => Effect.annotateLogs(effect, { server_id: spec.id })
  ),
  finishAll: Effect.forEach(
    [lostDir, nearDir],
    (dir) =>
      Effect.flatMap(listFolder(dir), (names) =>
        Effect.forEach(names, (name) => finishInterrupted(dir, name), { discard: true })
      ),
    { discard: true }
  ).pipe(Effect.catch((error) => Effect.logError(`orphaned servers cannot be read: ${error.message}`)))
})

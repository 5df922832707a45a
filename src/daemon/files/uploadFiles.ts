/**
 * Unfinished uploads on disk (spec 10.8): a record of each in the folder `uploads` beside `server.json`, and a temporary
 * file in the deepest folder of its path that exists.
 */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Option, Schema } from "effect"
import { isWithin, nameBytes } from "../../contract/domain/Files.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { Bytes, UploadRequest } from "../../contract/nodeApi/NodeUploadsApi.ts"
import { forEachEntry, io, listFolder, makeClosedFolder, orMissing } from "../disk/fsio.ts"
import { recordReader, writeAtomic } from "../disk/replaceFile.ts"
import { enter, enterAll, openRoot, io as uninterruptible, within } from "../disk/safePath.ts"
import type { FileLayout } from "./fileLayout.ts"
import type { InstanceFiles } from "./InstanceFiles.ts"

export const UploadRecord = Schema.Struct({
  ...UploadRequest.fields,
  /** The name of the temporary file. */
  file: Schema.String,
  /** Its inode, and when this was made. */
  identity: Schema.String,
  /** Folders of the path that lead to the temporary file. */
  depth: Schema.Int,
  /** The first byte whose checksum is not known yet. */
  unverified: Schema.optionalKey(Bytes),
  /** Whether the upload has ended, and the server has moved its temporary file, which {@link removeMoved} finds. */
  lost: Schema.optionalKey(Schema.Boolean),
  /** Set once the file is in place. `at`: milliseconds since the epoch. */
  done: Schema.optionalKey(Schema.Struct({ etag: Schema.String, at: Schema.Int }))
})
export type UploadRecord = typeof UploadRecord.Type

const read = recordReader(UploadRecord)

const SUFFIX = ".json"
const folderOf = (folder: string) => join(folder, "uploads")
const pathOf = (folder: string, id: string) => join(folderOf(folder), `${id}${SUFFIX}`)

export const uploadIds = (folder: string) =>
  Effect.map(listFolder(folderOf(folder)), (names) =>
    names.flatMap((name) => (name.endsWith(SUFFIX) ? [name.slice(0, -SUFFIX.length)] : []))
  )

export const readUpload = (folder: string, id: string) => read(pathOf(folder, id))

export const saveUpload = (folder: string, record: UploadRecord) =>
  Effect.andThen(
    makeClosedFolder(folderOf(folder)),
    writeAtomic(pathOf(folder, record.upload_id), JSON.stringify(record))
  )

export const forgetUpload = (folder: string, id: string) =>
  io(`remove the record of upload ${id}`, () => fs.rm(pathOf(folder, id), { force: true }))

/** Opens the folder of a server, or the volume, that a path begins in. */
const openTop = Effect.fnUntraced(function* ({ root, shared }: FileLayout, path: string) {
  const part = shared.findLast(({ parts }) => isWithin(`/${parts.join("/")}`, path))
  const top =
    part === undefined
      ? yield* openRoot(root)
      : yield* Effect.flatMap(part.open, ({ handle }) => openRoot(`/proc/self/fd/${handle.fd}`))
  return { names: path.split("/").slice(1 + (part?.parts.length ?? 0)), top }
})

/** Removes the temporary file of an upload. Returns whether it was where the upload has made it. */
export const removeTemporary = Effect.fnUntraced(function* (
  layout: FileLayout,
  { depth, file, path }: UploadRecord
) {
  const { names, top } = yield* openTop(layout, path)
  const parts = names.slice(0, depth).map((name) => Buffer.from(nameBytes(name)))
  const folder = yield* enterAll(path, top, parts)
  if (Option.isNone(folder)) return false
  return yield* uninterruptible(path, () => fs.unlink(within(folder.value, file)).then(() => true)).pipe(
    orMissing(false)
  )
}, Effect.scoped)

/** Folders that are open at a time. Callers do not reach deeper ones. */
const MAX_DEPTH = 64
/** Longest search for moved files. */
const SEARCHED = "10 seconds"

/** Removes files from a tree by their names. A folder that changes meanwhile is left out. */
const removeNamed = (
  path: string,
  folder: fs.FileHandle,
  files: ReadonlySet<string>,
  depth = 0
): Effect.Effect<void> =>
  Effect.ignore(
    forEachEntry(`/proc/self/fd/${folder.fd}/.`, (entry) => {
      const { name } = entry
      if (entry.isDirectory() && depth < MAX_DEPTH) {
        return enter(path, folder, name).pipe(
          Effect.flatMap((inside) =>
            Option.isNone(inside) ? Effect.void : removeNamed(path, inside.value, files, depth + 1)
          ),
          Effect.scoped,
          Effect.ignore
        )
      }
      return files.has(name.toString())
        ? Effect.ignore(uninterruptible(path, () => fs.unlink(within(folder, name))))
        : Effect.void
    })
  )

/** Removes temporary files that the server has moved elsewhere in its folder, or in their volume. */
export const removeMoved = (layout: FileLayout, records: ReadonlyArray<UploadRecord>) =>
  Effect.gen(function* () {
    const files = new Set(records.map(({ file }) => file))
    const searched = new Set<string>()
    for (const { path } of records) {
      const { top } = yield* openTop(layout, path)
      const { dev, ino } = yield* uninterruptible(path, () => top.stat())
      if (searched.has(`${dev}-${ino}`)) continue
      searched.add(`${dev}-${ino}`)
      yield* removeNamed(path, top, files)
    }
  }).pipe(Effect.scoped, Effect.timeoutOption(SEARCHED), Effect.ignore)

/** Removes all uploads of a server: work on its files begins, or the server leaves the node. */
export const discardUploads = Effect.fnUntraced(
  function* (files: Pick<InstanceFiles["Service"], "layout">, folder: string, spec: ServerSpec) {
    const ids = yield* uploadIds(folder)
    if (ids.length === 0) return
    const layout = yield* Effect.option(files.layout(folder, spec))
    const moved: Array<UploadRecord> = []
    for (const id of ids) {
      const record = yield* readUpload(folder, id)
      if (record?.done !== undefined || record === undefined || Option.isNone(layout)) continue
      const isRemoved = yield* Effect.orElseSucceed(removeTemporary(layout.value, record), () => false)
      if (!isRemoved) moved.push(record)
    }
    if (moved.length > 0 && Option.isSome(layout)) yield* removeMoved(layout.value, moved)
    for (const id of ids) yield* forgetUpload(folder, id)
  },
  Effect.catch((error) => Effect.logWarning(`unfinished uploads are not removed: ${error.message}`))
)

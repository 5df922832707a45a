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
import { io, listFolder, makeClosedFolder, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { enterAll, openRoot, io as uninterruptible, within } from "../disk/safePath.ts"
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
  /** Set once the file is in place. `at`: milliseconds since the epoch. */
  done: Schema.optionalKey(Schema.Struct({ etag: Schema.String, at: Schema.Int }))
})
export type UploadRecord = typeof UploadRecord.Type

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(UploadRecord))

const SUFFIX = ".json"
const folderOf = (folder: string) => join(folder, "uploads")
const pathOf = (folder: string, id: string) => join(folderOf(folder), `${id}${SUFFIX}`)

export const uploadIds = (folder: string) =>
  Effect.map(listFolder(folderOf(folder)), (names) =>
    names.flatMap((name) => (name.endsWith(SUFFIX) ? [name.slice(0, -SUFFIX.length)] : []))
  )

export const readUpload = (folder: string, id: string) =>
  readText(pathOf(folder, id)).pipe(
    orMissing(""),
    Effect.map((text) => Option.getOrUndefined(decode(text)))
  )

export const saveUpload = (folder: string, record: UploadRecord) =>
  Effect.andThen(
    makeClosedFolder(folderOf(folder)),
    writeAtomic(pathOf(folder, record.upload_id), JSON.stringify(record))
  )

export const forgetUpload = (folder: string, id: string) =>
  io(`remove the record of upload ${id}`, () => fs.rm(pathOf(folder, id), { force: true }))

export const removeTemporary = Effect.fnUntraced(function* (
  { root, shared }: FileLayout,
  { depth, file, path }: UploadRecord
) {
  const part = shared.findLast(({ parts }) => isWithin(`/${parts.join("/")}`, path))
  const names = path.split("/").slice(1 + (part?.parts.length ?? 0))
  const top = part === undefined ? yield* openRoot(root) : yield* openPart(part)
  const folder = yield* enterAll(
    path,
    top,
    names.slice(0, depth).map((name) => Buffer.from(nameBytes(name)))
  )
  if (Option.isNone(folder)) return
  yield* uninterruptible(path, () => fs.unlink(within(folder.value, file))).pipe(orMissing(undefined))
}, Effect.scoped)

const openPart = (part: FileLayout["shared"][number]) =>
  Effect.flatMap(part.open, ({ handle }) => openRoot(`/proc/self/fd/${handle.fd}`))

/** Removes all uploads of a server: work on its files begins, or the server leaves the node. */
export const discardUploads = Effect.fnUntraced(
  function* (files: Pick<InstanceFiles["Service"], "layout">, folder: string, spec: ServerSpec) {
    const ids = yield* uploadIds(folder)
    if (ids.length === 0) return
    const layout = yield* Effect.option(files.layout(folder, spec))
    for (const id of ids) {
      const record = yield* readUpload(folder, id)
      if (record?.done === undefined && record !== undefined && Option.isSome(layout))
        yield* Effect.ignore(removeTemporary(layout.value, record))
      yield* forgetUpload(folder, id)
    }
  },
  Effect.catch((error) => Effect.logWarning(`unfinished uploads are not removed: ${error.message}`))
)

import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { PreconditionFailed, RangeNotSatisfiable } from "../domain/errors.ts"
import {
  ArchiveFormat,
  FileDifference,
  FileEntry,
  FileMatch,
  FileMode,
  FilePath,
  formatOfName
} from "../domain/Files.ts"
import { MOST_CHANGES, MOST_PACKED, Overwrite } from "../domain/FileTask.ts"
import { ServerId } from "../domain/Id.ts"
import { optionalInput } from "../domain/optionalInput.ts"
import { BulkOutcomes, Selector } from "../domain/Selector.ts"
import { errorsOfNode, onNode } from "./endpoint.ts"
import { Authorization, ReadableServers } from "./middleware.ts"
import { begun, waitHeaders } from "./OperationsGroup.ts"
import { filePath, filePaths, flag, given, names, numberBetween, oneOf, shortText, text } from "./query.ts"

/** Bytes of a body with the paths of many files. */
const LARGEST_CHANGE = 4 * 1024 * 1024

/** UTF-16 code units of the text that a request writes to many servers. */
const LONGEST_CONTENT = 1024 * 1024

/** Bytes of a body with such a text: JSON takes six for some characters. */
const LARGEST_BODY = 6 * LONGEST_CONTENT + 64 * 1024

export const bytes = HttpApiSchema.StreamUint8Array({ contentType: "application/octet-stream" })

export const ticket = text(
  "A ticket in place of the `Authorization` header, for browsers. It is for one path, or one list of paths: it begins the download within 30 s, and again until 60 s after it broke."
)

export const header = (description: string) => Schema.optionalKey(Schema.String.annotate({ description }))

/** The headers of a download. */
export const rangeHeaders = {
  range: header("One range of bytes, as `bytes=0-1023`: the response is 206. Several ranges are ignored."),
  "if-range": header("The range counts only if the file has this tag."),
  "if-none-match": header("The response is 304 if the file has this tag.")
}

const many = <S extends Schema.Constraint>(one: S) =>
  Schema.Array(one).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_CHANGES))

/** The outcomes, or the operation that makes more changes than a request does (spec 10.3). */
const changed = [BulkOutcomes, begun.success] as const

/** The policy of a route that changes up to {@link MOST_CHANGES} files, with two paths each. */
const changes = (audited: `file.${string}`) =>
  ({
    right: "files",
    audited,
    longestWait: 570,
    largeBody: LARGEST_CHANGE,
    mostValues: 4 * MOST_CHANGES
  }) as const

const FromTo = Schema.Struct({ from: FilePath, to: FilePath }).annotate({ identifier: "FromTo" })
const overwrite = optionalInput(
  Schema.Literals(["fail", "replace"]).annotate({
    description: "What happens to an entry whose target exists; default `fail`: its outcome is 409."
  })
)

export const FolderRequest = Schema.Struct({ path: FilePath }).annotate({ identifier: "FolderRequest" })
export const MoveRequest = Schema.Struct({ moves: many(FromTo), overwrite }).annotate({
  identifier: "MoveRequest"
})
export const CopyRequest = Schema.Struct({ copies: many(FromTo), overwrite }).annotate({
  identifier: "CopyRequest"
})
export const DeleteRequest = Schema.Struct({ paths: many(FilePath) }).annotate({
  identifier: "DeleteRequest"
})
export const ModeRequest = Schema.Struct({
  paths: many(FilePath),
  mode: FileMode
}).annotate({ identifier: "ModeRequest" })

const whatExists = "What happens to an entry whose path exists"

export const UnpackRequest = Schema.Struct({
  path: FilePath,
  to: FilePath,
  overwrite: optionalInput(
    Overwrite.annotate({ description: `${whatExists}; default \`fail\`: the archive is refused as a whole.` })
  )
}).annotate({ identifier: "UnpackRequest" })

export const PackRequest = Schema.Struct({
  paths: Schema.Array(FilePath).check(Schema.isMinLength(1), Schema.isMaxLength(MOST_PACKED)),
  to: FilePath.check(
    Schema.makeFilter((path: string) => formatOfName(path) !== undefined, {
      expected: `a name that ends with ${ArchiveFormat.literals.map((format) => `.${format}`).join(", ")}`
    })
  ).annotate({ description: "The archive; its name decides the format." }),
  overwrite: optionalInput(
    Schema.Literals(["fail", "replace"]).annotate({
      description: "What happens to an archive that exists; default `fail`: 409."
    })
  )
}).annotate({ identifier: "PackRequest" })

/** Body of `POST /api/files`: the text, or the file from which the contents come. */
export const WriteToMany = Schema.Struct({
  selector: Selector,
  path: FilePath,
  content: optionalInput(
    Schema.String.check(Schema.isMaxLength(LONGEST_CONTENT)).annotate({
      description: "The contents, in place of `from`."
    })
  ),
  from: optionalInput(
    Schema.Struct({ server_id: ServerId, path: FilePath }).annotate({ identifier: "FileOf" })
  )
})
  .check(
    Schema.makeFilter(({ content, from }) => (content === undefined) !== (from === undefined), {
      expected: "either from or content"
    })
  )
  .annotate({ identifier: "WriteToMany" })

const { get, post, put } = onNode

/** Files of servers (spec 10.3). */
export class FilesGroup extends HttpApiGroup.make("files")
  .add(
    get("list", "/servers/:server/files", "List a folder, by name", {
      right: "browse",
      query: {
        path: filePath("The folder; default `/`."),
        limit: numberBetween(1, 1000, "At most this many entries; `Link` has the address of the next page."),
        after: text("Only entries after the one with this name."),
        include: names(["size"], "`size`: also the bytes of folders, as far as they are counted in time.")
      },
      success: Schema.Array(FileEntry)
    }),
    get("read", "/servers/:server/files/content", "Download a file; HEAD returns its size and its tag", {
      right: "browse",
      audited: "file.read",
      acceptsTicket: true,
      transfers: true,
      query: { path: filePath("The file to read."), ticket },
      headers: rangeHeaders,
      success: bytes,
      errors: [PreconditionFailed, RangeNotSatisfiable]
    }),
    put(
      "write",
      "/servers/:server/files/content",
      "Write a file of any size; the old one stays until the last byte is on disk",
      {
        right: "files",
        audited: "file.write",
        transfers: true,
        query: {
          path: filePath("The file; missing folders are made."),
          mode: given(
            /^(?:0?[0-7]{3})?$/,
            "permissions such as 0644",
            "Permissions in octal digits; default: those of the file, or 0644."
          )
        },
        headers: {
          "if-match": header("412 unless the file has this tag."),
          "if-none-match": header("`*`: 412 if the file exists."),
          "content-digest": header("`sha-256=:...:`, in base64; 422 if the contents have another.")
        },
        payload: bytes,
        success: [HttpApiSchema.Empty(201), HttpApiSchema.Empty(204)],
        errors: [PreconditionFailed]
      }
    ),
    get("archive", "/servers/:server/files/archive", "Download files and folders as an archive", {
      right: "browse",
      audited: "file.read",
      acceptsTicket: true,
      transfers: true,
      query: {
        path: filePaths("A file or folder; may be given more than once."),
        format: oneOf(ArchiveFormat.literals, "The format; default `tar.zst`."),
        ticket
      },
      success: bytes
    }),
    put(
      "receive",
      "/servers/:server/files/archive",
      "Unpack an archive of any size while it arrives; nothing of it stays if it breaks",
      {
        right: "files",
        audited: "file.unpack",
        transfers: true,
        ...begun,
        query: {
          path: filePath("The folder that gets the entries; it is made if it is missing."),
          format: oneOf(ArchiveFormat.literals, "The format; default: the one that the first bytes show."),
          overwrite: oneOf(Overwrite.literals, `${whatExists}; default \`fail\`: the archive is refused.`)
        },
        payload: bytes
      }
    ),
    post("unpack", "/servers/:server/files/unpack", "Unpack an archive of the server into a folder", {
      right: "files",
      audited: "file.unpack",
      ...begun,
      payload: UnpackRequest
    }),
    post("folder", "/servers/:server/files/folder", "Make a folder, and the missing ones above it", {
      right: "files",
      audited: "file.folder",
      longestWait: 570,
      payload: FolderRequest,
      success: BulkOutcomes
    }),
    post("move", "/servers/:server/files/move", "Move and rename files and folders", {
      ...changes("file.move"),
      headers: waitHeaders,
      payload: MoveRequest,
      success: changed
    }),
    post("copy", "/servers/:server/files/copy", "Copy files and folders", {
      ...changes("file.copy"),
      headers: waitHeaders,
      payload: CopyRequest,
      success: changed
    }),
    post("delete", "/servers/:server/files/delete", "Delete files, and folders with all that is in them", {
      ...changes("file.delete"),
      headers: waitHeaders,
      payload: DeleteRequest,
      success: changed
    }),
    post("mode", "/servers/:server/files/mode", "Set the permissions of files", {
      ...changes("file.mode"),
      headers: waitHeaders,
      payload: ModeRequest,
      success: changed
    }),
    post("pack", "/servers/:server/files/pack", "Pack files and folders into an archive of the server", {
      right: "files",
      audited: "file.pack",
      largeBody: LARGEST_CHANGE,
      ...begun,
      payload: PackRequest
    }),
    get(
      "search",
      "/servers/:server/files/search",
      "Find files by name and by text; X-Muster-Incomplete: true says that a limit of time, files or bytes ended the search",
      {
        right: "browse",
        audited: "file.read",
        query: {
          path: filePath("The folder; default `/`."),
          name: shortText(1024, "A glob of names: `*` and `?`."),
          text: shortText(1024, "A literal text in the files."),
          case: flag("`true`: upper and lower case differ in `text`; default `false`."),
          limit: numberBetween(1, 1000, "At most this many matches; default 100.")
        },
        success: Schema.Array(FileMatch)
      }
    ),
    get("diff", "/servers/:server/files/diff", "The paths at which the server differs from its base", {
      right: "browse",
      success: Schema.Array(FileDifference)
    }),
    post("writeToMany", "/files", "Write one file to all selected servers", {
      right: "files",
      audited: "file.write",
      longestWait: 570,
      largeBody: LARGEST_BODY,
      payload: WriteToMany,
      success: BulkOutcomes,
      errors: errorsOfNode
    })
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Files" })) {}

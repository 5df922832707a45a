/**
 * The frames of {@link FileSession} over a WebSocket (spec 10.6), in both directions: a number of 4 bytes that the
 * answer repeats, the length of the head in 4 bytes, the head as JSON, then the bytes of a read or write.
 */
import { Option, Schema } from "effect"
import { FilePath, FileType } from "../domain/Files.ts"

/** Bytes of one read or write; daemons take no message over 64 KiB. */
export const LARGEST_PIECE = 48 * 1024

/** Entries of an open folder in one answer, which fits a frame with the longest names. */
export const ENTRIES_AT_ONCE = 64

/** Requests of a session without an answer yet. */
export const MOST_IN_FLIGHT = 64

const offset = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }))
const mode = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 0o777 }))

/** Permission bits, seconds since the epoch, bytes. Absent ones stay as they are. */
const FileAttributes = Schema.Struct({
  mode: Schema.optionalKey(mode),
  modified: Schema.optionalKey(offset),
  size: Schema.optionalKey(offset)
})
export type FileAttributes = typeof FileAttributes.Type

/** A change of one entry as POSIX has it: nothing is made or removed recursively. With `replace`, a file takes the place of another. */
const EntryChange = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("set"), path: FilePath, attributes: FileAttributes }),
  Schema.Struct({ kind: Schema.Literal("folder"), path: FilePath, mode: Schema.optionalKey(mode) }),
  Schema.Struct({ kind: Schema.Literals(["remove", "remove-folder"]), path: FilePath }),
  Schema.Struct({ kind: Schema.Literal("rename"), from: FilePath, path: FilePath, replace: Schema.Boolean })
])
export type EntryChange = typeof EntryChange.Type

/** How a file is opened. Without `create`, a missing file is 404; with `exclusive`, one that exists is 409. */
const OpenFlags = Schema.Struct({
  read: Schema.Boolean,
  write: Schema.Boolean,
  create: Schema.Boolean,
  exclusive: Schema.Boolean,
  truncate: Schema.Boolean
})
export type OpenFlags = typeof OpenFlags.Type

/** `file` is the number that `open` or `folder` has returned. */
const SessionRequest = Schema.Union([
  Schema.Struct({
    op: Schema.Literal("open"),
    path: FilePath,
    flags: OpenFlags,
    mode: Schema.optionalKey(mode)
  }),
  Schema.Struct({
    op: Schema.Literal("read"),
    file: Schema.Int,
    offset,
    length: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: LARGEST_PIECE }))
  }),
  Schema.Struct({ op: Schema.Literal("write"), file: Schema.Int, offset }),
  Schema.Struct({ op: Schema.Literals(["stat", "sync", "close", "entries"]), file: Schema.Int }),
  Schema.Struct({ op: Schema.Literal("folder"), path: FilePath }),
  Schema.Struct({ op: Schema.Literal("set"), file: Schema.Int, attributes: FileAttributes }),
  Schema.Struct({ op: Schema.Literal("change"), change: EntryChange }),
  Schema.Struct({ op: Schema.Literal("space") })
])
export type SessionRequest = typeof SessionRequest.Type

/** The room of a server, in bytes and in files. */
const Space = Schema.Struct({ bytes: offset, free_bytes: offset, files: offset, free_files: offset })
export type Space = typeof Space.Type

/** An entry of a folder as `lstat` has it: permission bits, seconds since the epoch, bytes. */
const ListedEntry = Schema.Struct({
  name: Schema.String,
  type: FileType,
  mode,
  modified: offset,
  size: offset
})
export type ListedEntry = typeof ListedEntry.Type

const SessionAnswer = Schema.Struct({
  file: Schema.optionalKey(Schema.Int),
  stat: Schema.optionalKey(Schema.Struct({ mode, modified: Schema.Int, size: offset })),
  space: Schema.optionalKey(Space),
  entries: Schema.optionalKey(Schema.Array(ListedEntry).check(Schema.isMaxLength(ENTRIES_AT_ONCE))),
  refused: Schema.optionalKey(
    Schema.Struct({
      status: Schema.Literals([403, 404, 409, 412, 416, 422, 429, 500, 507]),
      detail: Schema.String,
      hint: Schema.String
    })
  )
})
export type SessionAnswer = typeof SessionAnswer.Type

const HEAD = 8

const frame = (id: number, head: object, bytes: Uint8Array = new Uint8Array()): Uint8Array => {
  const text = new TextEncoder().encode(JSON.stringify(head))
  const all = new Uint8Array(HEAD + text.length + bytes.length)
  const view = new DataView(all.buffer)
  view.setUint32(0, id)
  view.setUint32(4, text.length)
  all.set(text, HEAD)
  all.set(bytes, HEAD + text.length)
  return all
}

const decoderOf =
  <A>(decode: (text: string) => Option.Option<A>) =>
  (all: Uint8Array) => {
    if (all.length < HEAD) return undefined
    const view = new DataView(all.buffer, all.byteOffset, all.length)
    const end = HEAD + view.getUint32(4)
    if (end > all.length) return undefined
    const head = Option.getOrUndefined(decode(new TextDecoder().decode(all.subarray(HEAD, end))))
    return head === undefined ? undefined : { id: view.getUint32(0), head, bytes: all.subarray(end) }
  }

export const requestFrame = (id: number, request: SessionRequest, bytes?: Uint8Array) =>
  frame(id, request, bytes)
export const answerFrame = (id: number, answer: SessionAnswer, bytes?: Uint8Array) => frame(id, answer, bytes)

/** Reads a request; undefined if the frame is malformed. */
export const readRequest = decoderOf(Schema.decodeUnknownOption(Schema.fromJsonString(SessionRequest)))
export const readAnswer = decoderOf(Schema.decodeUnknownOption(Schema.fromJsonString(SessionAnswer)))

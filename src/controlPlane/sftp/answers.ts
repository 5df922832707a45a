/** Answers the requests of a session that are no reads and writes. */
import { Effect } from "effect"
import { nameBytes } from "../../contract/domain/Files.ts"
import { type FileError, MOST_OPEN, type OpenFile } from "../../contract/nodeApi/NodeFiles.ts"
import type { EntryChange } from "../../contract/nodeApi/sessionFrames.ts"
import { closeHandle, type Handles, malformed, noHandle, refuse, resolved, tooMany } from "./handles.ts"
import * as sftp from "./packets.ts"
import type { Volume } from "./Volume.ts"

const O_READ = 1
const O_WRITE = 2
const O_APPEND = 4
const O_CREATE = 8
const O_TRUNCATE = 16
const O_EXCLUSIVE = 32

/** Copies bytes of one open file to another. @param length 0: to the end that the file has now */
const copyData = Effect.fnUntraced(function* (
  from: { readonly file: OpenFile; readonly at: number; readonly length: number },
  to: { readonly file: OpenFile; readonly at: number }
) {
  // Two paths may be one file, which would grow for ever.
  const { size } = yield* from.file.stat
  const end = from.length === 0 ? size : Math.min(size, from.at + from.length)
  for (let at = from.at; at < end; ) {
    const bytes = yield* from.file.read(at, Math.min(sftp.LARGEST_READ, end - at))
    if (bytes.length === 0) return
    yield* to.file.write(to.at + at - from.at, bytes)
    at += bytes.length
  }
})

/** Bytes of names in one answer, beside which another read fits into the largest packet of clients. */
const NAMES_BYTES = 96 * 1024
const ENTRY_BYTES = 100

/** Answers a request with a packet. */
type Answering = (id: number, body: sftp.PacketBody) => Effect.Effect<Buffer, FileError>

const done = (id: number, effect: Effect.Effect<void, FileError>) =>
  Effect.as(effect, sftp.statusPacket(id, sftp.OK, ""))

/** Answers a request that begins with a path; `read` reads its further fields. */
const onPath =
  <A>(
    read: (body: sftp.PacketBody) => A,
    answer: (id: number, path: string, given: A) => Effect.Effect<Buffer, FileError>
  ): Answering =>
  (id, body) =>
    Effect.suspend(() => {
      const bytes = body.string()
      const given = read(body)
      return body.isMalformed
        ? Effect.fail(malformed)
        : Effect.flatMap(resolved(bytes), (path) => answer(id, path, given))
    })

const nothing = () => undefined
const attributes = (body: sftp.PacketBody) => body.attributes()
const realPathAttributes = { type: "file", mode: 0, modified: 0, size: 0 } as const

const makeRename = (volume: Volume, replace: boolean) =>
  onPath(
    (body) => body.string(),
    (id, from, to) =>
      Effect.flatMap(resolved(to), (path) => done(id, volume.change({ kind: "rename", from, path, replace })))
  )

const makeExtensions = (volume: Volume, handles: Handles): ReadonlyMap<string, Answering> => {
  const space = (id: number, path: string) =>
    Effect.map(volume.space(path), (found) => sftp.spacePacket(id, found))
  return new Map<string, Answering>([
    ["posix-rename@openssh.com", makeRename(volume, true)],
    ["statvfs@openssh.com", onPath(nothing, space)],
    [
      "fstatvfs@openssh.com",
      (id, body) => Effect.flatMap(handles.of(body.text()), ({ path }) => space(id, path))
    ],
    [
      "fsync@openssh.com",
      (id, body) => Effect.flatMap(handles.file(body.text()), ({ file }) => done(id, file.sync))
    ],
    ["limits@openssh.com", (id) => Effect.succeed(sftp.limitsPacket(id, MOST_OPEN))],
    [
      "copy-data",
      Effect.fnUntraced(function* (id, body) {
        const from = yield* handles.file(body.text())
        const at = body.uint64()
        const length = body.uint64()
        const to = yield* handles.file(body.text())
        const target = body.uint64()
        if (body.isMalformed) return yield* malformed
        if (from.path === to.path) return yield* refuse(422, "copy-data needs two files")
        return yield* done(id, copyData({ file: from.file, at, length }, { file: to.file, at: target }))
      })
    ]
  ])
}

const notOffered = (id: number, what: string) =>
  Effect.succeed(sftp.statusPacket(id, sftp.OP_UNSUPPORTED, what))

/** Returns what answers the requests of each type that are no reads and writes. */
const makeAnswers = (volume: Volume, handles: Handles): Readonly<Record<number, Answering>> => {
  const extensions = makeExtensions(volume, handles)
  const change = <A>(read: (body: sftp.PacketBody) => A, changeOf: (path: string, given: A) => EntryChange) =>
    onPath(read, (id, path, given) => done(id, volume.change(changeOf(path, given))))
  const stat = onPath(nothing, (id, path) =>
    Effect.map(volume.stat(path), (found) => sftp.attributesPacket(id, found))
  )
  return {
    [sftp.OPEN]: onPath(
      (body) => ({ flags: body.uint32(), mode: body.attributes().mode }),
      Effect.fnUntraced(function* (id, path, { flags, mode }) {
        if (handles.isFull) return yield* tooMany
        const has = (flag: number) => (flags & flag) !== 0
        const opening = {
          read: has(O_READ),
          write: has(O_WRITE | O_APPEND),
          create: has(O_CREATE),
          exclusive: has(O_EXCLUSIVE),
          truncate: has(O_TRUNCATE)
        }
        const file = yield* volume.open(path, opening, mode)
        return sftp.handlePacket(id, handles.add({ kind: "file", file, path, appends: has(O_APPEND) }))
      })
    ),
    [sftp.CLOSE]: (id, body) =>
      Effect.suspend(() => {
        const handle = handles.take(body.text())
        return handle === undefined ? Effect.fail(noHandle) : done(id, closeHandle(handle))
      }),
    [sftp.LSTAT]: stat,
    [sftp.STAT]: stat,
    [sftp.FSTAT]: Effect.fnUntraced(function* (id, body) {
      const handle = yield* handles.of(body.text())
      const found =
        handle.kind === "file"
          ? ({ type: "file", ...(yield* handle.file.stat) } as const)
          : yield* volume.stat(handle.path)
      return sftp.attributesPacket(id, found)
    }),
    [sftp.FSETSTAT]: Effect.fnUntraced(function* (id, body) {
      const { file } = yield* handles.file(body.text())
      const given = body.attributes()
      if (body.isMalformed) return yield* malformed
      return yield* done(id, file.set(given))
    }),
    [sftp.SETSTAT]: change(attributes, (path, given) => ({ kind: "set", path, attributes: given })),
    [sftp.OPENDIR]: onPath(
      nothing,
      Effect.fnUntraced(function* (id, path) {
        if (handles.isFull) return yield* tooMany
        const folder = yield* volume.openFolder(path)
        return sftp.handlePacket(id, handles.add({ kind: "folder", folder, path }))
      })
    ),
    [sftp.READDIR]: Effect.fnUntraced(function* (id, body) {
      const { folder } = yield* handles.folder(body.text())
      const names: Array<sftp.Named> = []
      for (let bytes = 0; bytes < NAMES_BYTES; ) {
        const some = yield* folder.read
        if (some.length === 0) break
        names.push(...some)
        for (const { name } of some) bytes += 2 * name.length + ENTRY_BYTES
      }
      return names.length === 0 ? sftp.statusPacket(id, sftp.EOF, "") : sftp.namesPacket(id, names)
    }),
    [sftp.REMOVE]: change(nothing, (path) => ({ kind: "remove", path })),
    [sftp.MKDIR]: change(attributes, (path, { mode }) => ({
      kind: "folder",
      path,
      ...(mode === undefined ? {} : { mode })
    })),
    [sftp.RMDIR]: change(nothing, (path) => ({ kind: "remove-folder", path })),
    [sftp.REALPATH]: onPath(nothing, (id, path) =>
      Effect.succeed(
        sftp.namesPacket(id, [{ name: nameBytes(path), shown: path, attributes: realPathAttributes }])
      )
    ),
    [sftp.RENAME]: makeRename(volume, false),
    [sftp.EXTENDED]: (id, body) =>
      extensions.get(body.text())?.(id, body) ?? notOffered(id, "this extension is not offered")
  }
}

/** Returns the function that answers the requests that are no reads and writes. */
export const makeAnswering = (volume: Volume, handles: Handles) => {
  const answers = makeAnswers(volume, handles)
  return (type: number, id: number, body: sftp.PacketBody): Effect.Effect<Buffer, FileError> =>
    answers[type]?.(id, body) ?? notOffered(id, "links and this request are not offered")
}

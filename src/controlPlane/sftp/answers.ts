/** Answers the requests of a session that are no reads and writes. */
import { Effect } from "effect"
import { nameBytes } from "../../contract/domain/Files.ts"
import { type FileError, MOST_OPEN, type OpenFile } from "../../contract/nodeApi/NodeFiles.ts"
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

interface Answering {
  readonly volume: Volume
  readonly handles: Handles
  readonly send: (bytes: Uint8Array) => void
}

/** Returns the functions that answer renames and extensions, which share them. */
const makeExtended = ({ handles, send, volume }: Answering) => {
  const done = (id: number) => Effect.sync(() => send(sftp.statusPacket(id, sftp.OK, "")))
  const pathOf = (body: sftp.PacketBody) =>
    Effect.suspend(() => {
      const bytes = body.string()
      return body.isMalformed ? Effect.fail(malformed) : resolved(bytes)
    })

  const rename = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody, replace: boolean) {
    const from = yield* pathOf(body)
    const path = yield* pathOf(body)
    if (body.isMalformed) return yield* malformed
    yield* volume.change({ kind: "rename", from, path, replace })
    yield* done(id)
  })

  const extended = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    switch (body.text()) {
      case "posix-rename@openssh.com":
        return yield* rename(id, body, true)
      case "statvfs@openssh.com":
        return send(sftp.spacePacket(id, yield* volume.space(yield* pathOf(body))))
      case "fstatvfs@openssh.com": {
        const { path } = yield* handles.of(body.text())
        return send(sftp.spacePacket(id, yield* volume.space(path)))
      }
      case "fsync@openssh.com": {
        const { file } = yield* handles.file(body.text())
        yield* file.sync
        return yield* done(id)
      }
      case "limits@openssh.com":
        return send(sftp.limitsPacket(id, MOST_OPEN))
      case "copy-data": {
        const from = yield* handles.file(body.text())
        const at = body.uint64()
        const length = body.uint64()
        const to = yield* handles.file(body.text())
        const target = body.uint64()
        if (body.isMalformed) return yield* malformed
        if (from.path === to.path) return yield* refuse(422, "copy-data needs two files")
        yield* copyData({ file: from.file, at, length }, { file: to.file, at: target })
        return yield* done(id)
      }
      default:
        return send(sftp.statusPacket(id, sftp.OP_UNSUPPORTED, "this extension is not offered"))
    }
  })

  return { done, extended, pathOf, rename }
}

/** Returns the functions that answer the requests that are no reads and writes. */
export const makeAnswering = (scene: Answering) => {
  const { handles, send, volume } = scene
  const { done, extended, pathOf, rename } = makeExtended(scene)
  const open = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const path = yield* pathOf(body)
    const flags = body.uint32()
    const { mode } = body.attributes()
    if (body.isMalformed) return yield* malformed
    if (handles.isFull) return yield* tooMany
    const file = yield* volume.open(
      path,
      {
        read: (flags & O_READ) !== 0,
        write: (flags & (O_WRITE | O_APPEND)) !== 0,
        create: (flags & O_CREATE) !== 0,
        exclusive: (flags & O_EXCLUSIVE) !== 0,
        truncate: (flags & O_TRUNCATE) !== 0
      },
      mode
    )
    send(sftp.handlePacket(id, handles.add({ kind: "file", file, path, appends: (flags & O_APPEND) !== 0 })))
  })

  const openFolder = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const path = yield* pathOf(body)
    if (handles.isFull) return yield* tooMany
    const folder = yield* volume.openFolder(path)
    send(sftp.handlePacket(id, handles.add({ kind: "folder", folder, path })))
  })

  const readFolder = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const { folder } = yield* handles.folder(body.text())
    const names: Array<sftp.Named> = []
    for (let bytes = 0; bytes < NAMES_BYTES; ) {
      const some = yield* folder.read
      if (some.length === 0) break
      names.push(...some)
      for (const { name } of some) bytes += 2 * name.length + ENTRY_BYTES
    }
    send(names.length === 0 ? sftp.statusPacket(id, sftp.EOF, "") : sftp.namesPacket(id, names))
  })

  const realPath = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const path = yield* pathOf(body)
    const attributes = { type: "file", mode: 0, modified: 0, size: 0 } as const
    send(sftp.namesPacket(id, [{ name: nameBytes(path), shown: path, attributes }]))
  })

  const close = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const handle = handles.take(body.text())
    if (handle === undefined) return yield* noHandle
    yield* closeHandle(handle)
    yield* done(id)
  })

  const statHandle = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const handle = yield* handles.of(body.text())
    const attributes =
      handle.kind === "file"
        ? ({ type: "file", ...(yield* handle.file.stat) } as const)
        : yield* volume.stat(handle.path)
    send(sftp.attributesPacket(id, attributes))
  })

  const setHandle = Effect.fnUntraced(function* (id: number, body: sftp.PacketBody) {
    const { file } = yield* handles.file(body.text())
    const attributes = body.attributes()
    if (body.isMalformed) return yield* malformed
    yield* file.set(attributes)
    yield* done(id)
  })

  const change = Effect.fnUntraced(function* (
    id: number,
    body: sftp.PacketBody,
    kind: "set" | "folder" | "remove" | "remove-folder"
  ) {
    const path = yield* pathOf(body)
    const attributes = kind === "set" || kind === "folder" ? body.attributes() : {}
    if (body.isMalformed) return yield* malformed
    const { mode } = attributes
    yield* volume.change(
      kind === "set"
        ? { kind, path, attributes }
        : kind === "folder"
          ? { kind, path, ...(mode === undefined ? {} : { mode }) }
          : { kind, path }
    )
    yield* done(id)
  })

  return (type: number, id: number, body: sftp.PacketBody): Effect.Effect<void, FileError> => {
    switch (type) {
      case sftp.OPEN:
        return open(id, body)
      case sftp.CLOSE:
        return close(id, body)
      case sftp.LSTAT:
      case sftp.STAT:
        return Effect.flatMap(pathOf(body), (path) =>
          Effect.map(volume.stat(path), (attributes) => send(sftp.attributesPacket(id, attributes)))
        )
      case sftp.FSTAT:
        return statHandle(id, body)
      case sftp.FSETSTAT:
        return setHandle(id, body)
      case sftp.SETSTAT:
        return change(id, body, "set")
      case sftp.OPENDIR:
        return openFolder(id, body)
      case sftp.READDIR:
        return readFolder(id, body)
      case sftp.REMOVE:
        return change(id, body, "remove")
      case sftp.MKDIR:
        return change(id, body, "folder")
      case sftp.RMDIR:
        return change(id, body, "remove-folder")
      case sftp.REALPATH:
        return realPath(id, body)
      case sftp.RENAME:
        return rename(id, body, false)
      case sftp.EXTENDED:
        return extended(id, body)
      default:
        return Effect.sync(() =>
          send(sftp.statusPacket(id, sftp.OP_UNSUPPORTED, "links and this request are not offered"))
        )
    }
  }
}

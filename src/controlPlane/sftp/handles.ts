/** The open files and folders of one session, and its refusals as status codes of SFTP. */
import { Effect } from "effect"
import { shownName, whyNoPath } from "../../contract/domain/Files.ts"
import { type FileError, FileRefused, MOST_OPEN, type OpenFile } from "../../contract/nodeApi/NodeFiles.ts"
import * as sftp from "./packets.ts"
import type { VolumeFolder } from "./Volume.ts"

type Handle =
  | { readonly kind: "file"; readonly file: OpenFile; readonly path: string; readonly appends: boolean }
  | { readonly kind: "folder"; readonly folder: VolumeFolder; readonly path: string }

export const refuse = (status: FileRefused["status"], detail: string) =>
  new FileRefused({ status, detail, hint: "" })
export const noHandle = refuse(422, "no such handle")
export const malformed = refuse(422, "the packet is malformed")
export const tooMany = refuse(409, `the session has ${MOST_OPEN} open files`)

export const codeOf = (error: FileError): number => {
  if (error._tag === "NodeUnreachable") return sftp.FAILURE
  switch (error.status) {
    case 403:
      return sftp.PERMISSION_DENIED
    case 404:
      return sftp.NO_SUCH_FILE
    default:
      return error === malformed ? sftp.BAD_MESSAGE : sftp.FAILURE
  }
}

export const textOf = (error: FileError): string =>
  error._tag === "NodeUnreachable" ? "the node of the server is not connected" : error.detail

/** Returns an absolute path without `.`, `..` and empty names. @error FileRefused 422 it is no path of an instance */
export const resolved = (bytes: Buffer): Effect.Effect<string, FileRefused> => {
  const names: Array<string> = []
  // A name may have any bytes but these two: latin1 keeps them as they are.
  for (const name of bytes.toString("latin1").split("/")) {
    if (name === "..") names.pop()
    else if (name !== "" && name !== ".") names.push(shownName(Buffer.from(name, "latin1")))
  }
  const path = `/${names.join("/")}`
  const why = whyNoPath(path)
  return why === undefined ? Effect.succeed(path) : Effect.fail(refuse(422, `the path ${why}`))
}

export const closeHandle = (handle: Handle): Effect.Effect<void> =>
  handle.kind === "file" ? handle.file.close : handle.folder.close

export class Handles {
  readonly #open = new Map<string, Handle>()
  #last = 0

  get isFull(): boolean {
    return this.#open.size >= MOST_OPEN
  }

  get closeAll(): Effect.Effect<void> {
    return Effect.forEach([...this.#open.values()], closeHandle, { discard: true })
  }

  add(handle: Handle): string {
    this.#last += 1
    const key = String(this.#last)
    this.#open.set(key, handle)
    return key
  }

  take(key: string): Handle | undefined {
    const handle = this.#open.get(key)
    this.#open.delete(key)
    return handle
  }

  of(key: string): Effect.Effect<Handle, FileRefused> {
    const handle = this.#open.get(key)
    return handle === undefined ? Effect.fail(noHandle) : Effect.succeed(handle)
  }

  file(key: string): Effect.Effect<Extract<Handle, { kind: "file" }>, FileRefused> {
    const handle = this.#open.get(key)
    return handle?.kind === "file" ? Effect.succeed(handle) : Effect.fail(noHandle)
  }

  folder(key: string): Effect.Effect<Extract<Handle, { kind: "folder" }>, FileRefused> {
    const handle = this.#open.get(key)
    return handle?.kind === "folder" ? Effect.succeed(handle) : Effect.fail(noHandle)
  }
}

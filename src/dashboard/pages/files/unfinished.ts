/** Unfinished uploads that this tab remembers over a reload of the page, for which the file is chosen again. */
import { signal } from "@preact/signals"
import { request } from "../../api/http.ts"
import { filesRoute } from "./fileApi.ts"

/** The item of sessionStorage: it ends with the tab, as the key does. */
const ITEM = "muster.uploads"
/** Uploads that are remembered; the oldest ones make room. */
const MOST = 64

/** Bytes from which on an upload is resumable. */
export const RESUMABLE = 16 * 1024 * 1024

export const tus = { "tus-resumable": "1.0.0" }

/** An upload that a server has, and the file that it is of. */
export interface Remembered {
  /** Of the server. */
  readonly id: string
  readonly path: string
  /** The id of the upload, which only its key can use. */
  readonly upload: string
  readonly replaces: boolean
  readonly name: string
  readonly size: number
  /** Milliseconds since 1970. */
  readonly modified: number
}

/** An upload before the last load of the page, with the bytes that the server has. */
export interface Unfinished extends Remembered {
  readonly offset: number
}

/** The uploads that wait for their file; those of other keys are not among them. */
export const unfinished = signal<ReadonlyArray<Unfinished>>([])

const isText = (value: unknown): value is string => typeof value === "string"

const isRemembered = (value: unknown): value is Remembered => {
  if (typeof value !== "object" || value === null) return false
  const { id, modified, name, path, replaces, size, upload } = value as Record<string, unknown>
  return (
    [id, name, path, upload].every(isText) &&
    [modified, size].every(Number.isFinite) &&
    typeof replaces === "boolean"
  )
}

const read = (): ReadonlyArray<Remembered> => {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(ITEM) ?? "[]")
    return Array.isArray(stored) ? stored.filter(isRemembered) : []
  } catch {
    return []
  }
}

const write = (uploads: ReadonlyArray<Remembered>): void => {
  try {
    sessionStorage.setItem(ITEM, JSON.stringify(uploads.slice(-MOST)))
  } catch {
    // The storage is full or forbidden: a reload begins the uploads again.
  }
}

/** The route of an upload. */
export const uploadRoute = ({ id, upload }: Remembered): string =>
  filesRoute(id, `/uploads/${encodeURIComponent(upload)}`)

export const remember = (upload: Remembered): Remembered => {
  write([...read().filter((other) => other.id !== upload.id || other.path !== upload.path), upload])
  return upload
}

export const forget = ({ upload }: Remembered): void => {
  write(read().filter((other) => other.upload !== upload))
  unfinished.value = unfinished.value.filter((other) => other.upload !== upload)
}

/** Whether a file is the one of an upload, as far as a page can see. */
export const isOf = (file: File, { modified, name, size }: Remembered): boolean =>
  file.name === name && file.size === size && file.lastModified === modified

/** Returns the upload of a file that has begun, also before a reload. */
export const remembered = (of: {
  readonly id: string
  readonly path: string
  readonly file: File
}): Remembered | undefined =>
  of.file.size < RESUMABLE
    ? undefined
    : read().find((upload) => upload.id === of.id && upload.path === of.path && isOf(of.file, upload))

/** Ends an upload, and removes its bytes from the server. */
export const discard = (upload: Remembered): void => {
  forget(upload)
  void request("DELETE", uploadRoute(upload), { headers: tus })
}

/** Reads the bytes that an upload has; `etag` once the file is in place. */
export const readUpload = (upload: Remembered) =>
  request<{ readonly offset: number; readonly etag?: string }>("GET", uploadRoute(upload), { headers: tus })

/** Finds the uploads to a server that wait for their file: all that are not active. */
export const findUnfinished = async (
  id: string,
  isActive: (upload: Remembered) => boolean
): Promise<void> => {
  const found: Array<Unfinished> = []
  for (const upload of read()) {
    if (upload.id !== id || isActive(upload)) continue
    const reply = await readUpload(upload)
    if (reply.ok && reply.body.etag === undefined) found.push({ ...upload, offset: reply.body.offset })
    else if (reply.ok || reply.code === 404) forget(upload)
  }
  unfinished.value = [
    ...unfinished.value.filter((upload) => upload.id !== id),
    ...found.filter((upload) => !isActive(upload))
  ]
}

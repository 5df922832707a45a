/** Sends the contents of files. A large one continues where it stopped, as a resumable upload of tus 1.0 (spec 10.8). */

import { signal } from "@preact/signals"
import { failureOf, key, parsed, request } from "../../api/http.ts"
import { filesRoute } from "./fileApi.ts"

/** The item of sessionStorage with the unfinished uploads: it outlasts a reload of the page, and ends with the tab. */
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

/** The limit of attempts in a row that bring no byte: about a minute. */
const ATTEMPTS = 10
/** The limit of uploads of one file: after an upload that the service has lost, another one begins. */
const UPLOADS = 3

/** A file on its way to a server. */
export interface Sent {
  /** Of the server. */
  readonly id: string
  readonly path: string
  readonly file: File
  /** Whether a file at the path is replaced; otherwise the response is 412. */
  readonly replaces: boolean
  /** Bytes. */
  sent: number
  /** Why no byte follows for now. */
  problem: string
}

export interface Answer {
  readonly status: number
  readonly detail: string
  readonly hint: string
  /** Seconds. */
  readonly retryAfter: number
}

interface Contents {
  readonly headers: Readonly<Record<string, string>>
  readonly body: Blob
  readonly signal: AbortSignal
  readonly onSent: (bytes: number) => void
}

/** Sends a body with its progress, which fetch does not report. */
const send = (method: "PATCH" | "PUT", route: string, { body, headers, onSent, signal }: Contents) =>
  new Promise<Answer>((resolve) => {
    const sending = new XMLHttpRequest()
    sending.open(method, route)
    sending.setRequestHeader("authorization", `Bearer ${key.value ?? ""}`)
    sending.setRequestHeader("content-type", "application/octet-stream")
    for (const [name, value] of Object.entries(headers)) sending.setRequestHeader(name, value)
    sending.upload.addEventListener("progress", ({ loaded }) => onSent(loaded))
    sending.addEventListener("loadend", () => {
      resolve({
        ...failureOf(sending.status, parsed(sending.responseText)),
        status: sending.status,
        retryAfter: Number(sending.getResponseHeader("retry-after") ?? 0)
      })
    })
    signal.addEventListener("abort", () => sending.abort())
    sending.send(body)
  })

/** Sends a whole file in one request. */
export const sendWhole = (upload: Sent, signal: AbortSignal, drawn: () => void): Promise<Answer> =>
  send("PUT", filesRoute(upload.id, "/content", { path: upload.path }), {
    body: upload.file,
    headers: upload.replaces ? {} : { "if-none-match": "*" },
    signal,
    onSent: (bytes) => {
      upload.sent = bytes
      drawn()
    }
  })

const base64 = (text: string): string => btoa(String.fromCharCode(...new TextEncoder().encode(text)))

const answerOf = (status: number, { detail, hint } = { detail: "", hint: "" }): Answer => ({
  ...{ status, detail, hint },
  retryAfter: 0
})

/** Begins an upload; returns it, or the answer that refuses it. */
const begin = async ({ file, id, path, replaces }: Sent): Promise<Answer | Remembered> => {
  const metadata = { path, ...(replaces ? {} : { overwrite: "fail" }) }
  const reply = await request("POST", filesRoute(id, "/uploads"), {
    headers: {
      ...tus,
      "upload-length": String(file.size),
      "upload-metadata": Object.entries(metadata)
        .map(([name, value]) => `${name} ${base64(value)}`)
        .join(",")
    }
  })
  if (!reply.ok) return answerOf(reply.code, reply)
  const upload = reply.headers.get("location")?.split("/").at(-1) ?? ""
  return remember({
    id,
    path,
    upload,
    replaces,
    name: file.name,
    size: file.size,
    modified: file.lastModified
  })
}

/** No response, another writer, another offset, and a service or a node that is away. */
const passing: ReadonlyArray<number> = [0, 409, 423, 429, 500, 502, 503, 504]

const paused = (milliseconds: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, milliseconds)
    signal.addEventListener("abort", () => {
      clearTimeout(timer)
      resolve()
    })
  })

/** Sends the bytes that an upload does not have yet, in one request. */
const append = async (
  known: Remembered,
  upload: Sent,
  signal: AbortSignal,
  drawn: () => void
): Promise<Answer> => {
  const state = await readUpload(known)
  if (!state.ok) return answerOf(state.code, state)
  if (signal.aborted) return answerOf(0)
  const { etag, offset } = state.body
  upload.sent = offset
  drawn()
  // The node has had all bytes, and the last response was lost.
  if (etag !== undefined) return answerOf(204)
  return send("PATCH", uploadRoute(known), {
    headers: { ...tus, "upload-offset": String(offset) },
    body: upload.file.slice(offset),
    signal,
    onSent: (bytes) => {
      upload.sent = offset + bytes
      upload.problem = ""
      drawn()
    }
  })
}

/** Sends a large file, from where an earlier attempt has stopped; waits for a service that is away. */
export const sendResumable = async (
  upload: Sent,
  signal: AbortSignal,
  drawn: () => void
): Promise<Answer> => {
  let uploads = 0
  let breaks = 0
  let most = 0
  while (true) {
    const known = remembered(upload) ?? (await begin(upload))
    const answer = "upload" in known ? await append(known, upload, signal, drawn) : known
    if (signal.aborted) return answer
    const isLost = "upload" in known && answer.status === 404 && ++uploads < UPLOADS
    const isOver = (answer.status >= 200 && answer.status < 300) || answer.status === 412
    if ("upload" in known && (isLost || isOver)) forget(known)
    if (isLost) continue
    if (!passing.includes(answer.status)) return answer
    breaks = upload.sent > most ? 1 : breaks + 1
    most = Math.max(most, upload.sent)
    if (breaks >= ATTEMPTS) return answer
    upload.problem = "waits for the service"
    drawn()
    await paused(Math.max(1000 * answer.retryAfter, Math.min(10_000, 250 * 2 ** breaks)), signal)
  }
}

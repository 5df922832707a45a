/** The queue of uploads. It goes on while the reader looks at other pages of this tab. */
import { signal } from "@preact/signals"
import { request } from "../../api/http.ts"
import { changeFiles, filesRoute, pathIn } from "./fileApi.ts"
import {
  discard,
  findUnfinished,
  RESUMABLE,
  type Remembered,
  remembered,
  type Sent,
  sendResumable,
  sendWhole,
  unfinished
} from "./sending.ts"

/** Files that are sent at the same time. */
const AT_ONCE = 3
/** Files of one drop. */
const MOST = 20_000
/** Bytes from which on the queue asks whether a file exists before it sends the contents. */
const LARGE = 1024 * 1024
/** Milliseconds between two drawings of the progress. */
const EVERY = 150

/** `exists`: waits for the decision of the reader. */
export type UploadState = "waiting" | "sending" | "uploaded" | "failed" | "exists"

export interface Upload extends Sent {
  state: UploadState
  /** What to do about a failure; many uploads may have the same. */
  hint: string
  replaces: boolean
}

/** A file with its path below the folder into which it goes. */
export interface Found {
  readonly path: string
  readonly file: File
}

/** The uploads of the tab; {@link progress} changes with them. */
export const uploads = new Set<Upload>()
export const progress = signal(0)
export const isPaused = signal(false)
/** Changes some time after files were stored: lists are read again. */
export const stored = signal(0)

/** The uploads under way, each with what aborts it. */
const running = new Map<Upload, AbortController>()

/** Returns a function that runs work once some milliseconds after its first call. */
const gathered = (every: number, work: () => void): (() => void) => {
  let isWaiting = false
  return () => {
    if (isWaiting) return
    isWaiting = true
    setTimeout(() => {
      isWaiting = false
      work()
    }, every)
  }
}

const drawn = gathered(EVERY, () => progress.value++)
const listed = gathered(1000, () => stored.value++)

const end = (upload: Upload, state: UploadState, problem = "", hint = ""): void => {
  Object.assign(upload, { state, problem, hint })
  if (state === "uploaded") listed()
  drawn()
}

const exists = async (upload: Upload): Promise<boolean> =>
  !upload.replaces &&
  upload.file.size >= LARGE &&
  remembered(upload) === undefined &&
  (await request("HEAD", filesRoute(upload.id, "/content", { path: upload.path }))).ok

const send = async (upload: Upload, signal: AbortSignal): Promise<void> => {
  upload.state = "sending"
  const isKnown = await exists(upload)
  if (signal.aborted) return
  if (isKnown) return end(upload, "exists")
  const sent = upload.file.size < RESUMABLE ? sendWhole : sendResumable
  const { detail, hint, retryAfter, status } = await sent(upload, signal, drawn)
  if (signal.aborted) return
  if (status >= 200 && status < 300) return end(upload, "uploaded")
  if (status === 412 && !upload.replaces) return end(upload, "exists")
  if (status === 0) return end(upload, "failed", "The connection broke, or the file has changed or gone.")
  if (status !== 429) return end(upload, "failed", detail, hint)
  await new Promise((resolve) => setTimeout(resolve, Math.max(1, retryAfter) * 1000))
  if (!signal.aborted) await send(upload, signal)
}

const next = (): void => {
  if (isPaused.value) return
  for (const upload of uploads) {
    if (running.size >= AT_ONCE) return
    if (upload.state !== "waiting") continue
    const stopped = new AbortController()
    running.set(upload, stopped)
    void send(upload, stopped.signal).then(() => {
      if (running.get(upload) === stopped) running.delete(upload)
      next()
    })
  }
}

const stop = (upload: Upload): void => {
  running.get(upload)?.abort()
  running.delete(upload)
  upload.problem = ""
  if (remembered(upload) === undefined) upload.sent = 0
}

const requeue = (which: (upload: Upload) => boolean): void => {
  for (const upload of uploads) {
    if (!which(upload)) continue
    stop(upload)
    upload.state = "waiting"
  }
  drawn()
  next()
}

/** Stops all transfers; a large file continues where it stops, another one is sent from its beginning later. */
export const pause = (): void => {
  isPaused.value = true
  requeue(({ state }) => state === "sending")
}

export const resume = (): void => {
  isPaused.value = false
  next()
}

export const retry = (): void => requeue(({ state }) => state === "failed")

/** Decides for all files that exist already. */
export const decide = (replaces: boolean): void => {
  for (const upload of uploads) {
    if (upload.state !== "exists") continue
    if (replaces) upload.replaces = true
    else uploads.delete(upload)
  }
  requeue(({ state }) => state === "exists")
}

/** Ends one upload, or all and clears the list. */
export const cancel = (which: Iterable<Upload> = [...uploads]): void => {
  for (const upload of which) {
    stop(upload)
    uploads.delete(upload)
    const begun = upload.state === "uploaded" ? undefined : remembered(upload)
    if (begun !== undefined) discard(begun)
  }
  if (uploads.size === 0) isPaused.value = false
  drawn()
  next()
}

window.addEventListener("beforeunload", (event) => {
  if (running.size > 0) event.preventDefault()
})

/** Returns the name of a local file as the API takes it (spec 10.2). */
const escaped = (name: string): string => name.replace(/%(?=[89A-F][0-9A-F]|25)/g, "%25")

/** Adds files to the queue; returns why not, if so. */
export const enqueue = (id: string, folder: string, found: ReadonlyArray<Found>): string | undefined => {
  if (found.length > MOST) return `${found.length} files are more than the ${MOST} of one upload.`
  for (const { file, path } of found) add(id, pathIn(folder, escaped(path)), file)
  drawn()
  next()
  return undefined
}

const add = (id: string, path: string, file: File): void => {
  const replaces = remembered({ id, path, file })?.replaces ?? false
  unfinished.value = unfinished.value.filter((other) => other.id !== id || other.path !== path)
  uploads.add({ id, path, file, state: "waiting", sent: 0, problem: "", hint: "", replaces })
}

/** Continues an upload of an earlier load of the page with its file. */
export const continueWith = ({ id, path }: Remembered, file: File): void => {
  add(id, path, file)
  drawn()
  next()
}

/** Finds the uploads to a server of earlier loads of the page. */
export const findEarlier = (id: string): Promise<void> =>
  findUnfinished(id, (of) => [...uploads].some((upload) => upload.id === of.id && upload.path === of.path))

export const chosenFiles = (files: Iterable<File>): ReadonlyArray<Found> =>
  [...files].map((file) => ({
    file,
    path: file.webkitRelativePath === "" ? file.name : file.webkitRelativePath
  }))

const fileOf = (entry: FileSystemFileEntry): Promise<File> =>
  new Promise((resolve, reject) => entry.file(resolve, reject))

const entriesOf = (reader: FileSystemDirectoryReader): Promise<ReadonlyArray<FileSystemEntry>> =>
  new Promise((resolve, reject) => reader.readEntries(resolve, reject))

const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile
const isFolder = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory

/** Reads dropped files and folders; `folders` gets those without a file. */
const walk = async (entry: FileSystemEntry, found: Array<Found>, folders: Array<string>): Promise<void> => {
  const path = entry.fullPath.slice(1)
  if (isFile(entry)) found.push({ path, file: await fileOf(entry) })
  if (!isFolder(entry) || found.length > MOST) return
  const reader = entry.createReader()
  let isEmpty = true
  for (let some = await entriesOf(reader); some.length > 0; some = await entriesOf(reader)) {
    isEmpty = false
    for (const inner of some) await walk(inner, found, folders)
  }
  if (isEmpty) folders.push(path)
}

/** Adds what was dropped to the queue; returns why not, if so. */
export const enqueueDropped = async (
  id: string,
  folder: string,
  dropped: DataTransfer
): Promise<string | undefined> => {
  // The list is empty after the first pause.
  const entries = [...dropped.items].flatMap((item) => item.webkitGetAsEntry() ?? [])
  const found: Array<Found> = []
  const folders: Array<string> = []
  try {
    for (const entry of entries) await walk(entry, found, folders)
  } catch (problem) {
    return `The browser cannot read what was dropped: ${problem}`
  }
  for (const path of folders) {
    const reply = await changeFiles(id, "folder", { path: pathIn(folder, escaped(path)) })
    if (!reply.ok) return `${reply.detail} ${reply.hint}`
  }
  if (folders.length > 0) listed()
  return enqueue(id, folder, found)
}

/** Files of a server over the API (spec 10.3), and their paths. */
import { useEffect, useState } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import {
  type Failure,
  get,
  getBytes,
  hasNext,
  post,
  probe,
  type Reply,
  request,
  segment
} from "../../api/http.ts"
import type { FileEntry, FileMatch, Operation } from "../../api/types.ts"
import { counted } from "../../dom/format.ts"
import { done, failed } from "../../state/notices.ts"
import { tellOperation } from "../../state/operations.ts"

/** The largest file that the editor opens, in bytes. */
export const LARGEST = 1024 * 1024

/** The longest change of files, in milliseconds. */
const LONG = 600_000

export type Query = Readonly<Record<string, string | number | boolean | ReadonlyArray<string> | undefined>>

/** Returns the query of an address, without values that are undefined. */
export const queryText = (query: Query): string => {
  const values = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((one) => [name, String(one)])
  )
  return new URLSearchParams(values).toString()
}

/** Returns the address of a route of files. */
export const filesRoute = (id: string, route: string, query: Query = {}): string =>
  `/api/servers/${segment(id)}/files${route}?${queryText(query)}`

/** Returns the path of a name in a folder, whose path may end with a slash. */
export const pathIn = (folder: string, name: string): string => `${folder.replace(/\/$/, "")}/${name}`

/** Returns the folder of a path, with a slash at its end. */
export const folderOf = (path: string): string => path.slice(0, path.replace(/\/$/, "").lastIndexOf("/") + 1)

export const fileName = (path: string): string => path.slice(folderOf(path).length).replace(/\/$/, "")

/** The path of a folder as the API takes it. */
export const folderPath = (folder: string): string => (folder === "/" ? folder : folder.replace(/\/$/, ""))

/** Reads a page of a folder. */
export const readPage = (id: string, folder: string, query: Query) =>
  get<ReadonlyArray<FileEntry>>(filesRoute(id, "", { path: folderPath(folder), ...query }))

export interface Folder<Entry> {
  readonly entries: ReadonlyArray<Entry> | undefined
  readonly failure: Failure | undefined
  /** Whether the folder has entries that are not read yet. */
  readonly hasMore: boolean
  readonly reload: () => void
  readonly more: () => void
}

/**
 * Reads the first page of a folder, and a further one with each call of `more`. Another folder needs another caller.
 * @param readAfter reads the page after a name
 */
export const useFolder = <Entry extends { readonly name: string }>(
  readAfter: (name: string | undefined) => Promise<Reply<ReadonlyArray<Entry>>>
): Folder<Entry> => {
  const [entries, setEntries] = useState<ReadonlyArray<Entry>>()
  const [failure, setFailure] = useState<Failure>()
  const [hasMore, setMore] = useState(false)
  const [wanted, setWanted] = useState<{ readonly known: ReadonlyArray<Entry>; readonly most: number }>({
    known: [],
    most: 1
  })
  useEffect(() => {
    let isGone = false
    const read = async () => {
      const read = [...wanted.known]
      let next = true
      while (next && read.length < wanted.most) {
        const reply = await readAfter(read.at(-1)?.name)
        if (isGone) return
        if (!reply.ok) return setFailure(reply)
        read.push(...reply.body)
        next = reply.body.length > 0 && hasNext(reply)
      }
      setEntries(read)
      setMore(next)
      setFailure(undefined)
    }
    void read()
    return () => {
      isGone = true
    }
  }, [wanted])
  const known = entries ?? []
  return {
    entries,
    failure,
    hasMore,
    reload: () => setWanted({ known: [], most: Math.max(1, known.length) }),
    more: () => setWanted({ known, most: known.length + 1 })
  }
}

/** Returns the entry of a path, which is soon after the names that are a little smaller. */
export const entryOf = async (id: string, path: string): Promise<Reply<FileEntry | undefined>> => {
  const name = fileName(path)
  const end = name.length - 1
  const after = name.slice(0, end) + String.fromCharCode(Math.max(1, name.charCodeAt(end) - 1))
  const reply = await readPage(id, folderOf(path), { after, limit: 100 })
  return reply.ok ? { ...reply, body: reply.body.find((entry) => entry.name === name) } : reply
}

export const readContent = (id: string, path: string, signal: AbortSignal): Promise<Reply<ArrayBuffer>> =>
  getBytes(filesRoute(id, "/content", { path }), signal)

/** Returns the tag of a file, which is unset if there is no file; nothing if the service does not say. */
export const readTag = async (
  id: string,
  path: string
): Promise<{ readonly tag: string | undefined } | undefined> => {
  const reply = await request("HEAD", filesRoute(id, "/content", { path }))
  if (reply.ok) return { tag: reply.headers.get("etag") ?? undefined }
  return reply.code === 404 ? { tag: undefined } : undefined
}

/** Writes a text if the file still has the tag, or, without one, if there is no file. */
export const writeText = (id: string, path: string, text: string, tag?: string): Promise<Reply<unknown>> =>
  request("PUT", filesRoute(id, "/content", { path }), {
    text,
    headers: tag === undefined ? { "if-none-match": "*" } : { "if-match": tag }
  })

export const searchFiles = (id: string, query: Query): Promise<Reply<ReadonlyArray<FileMatch>>> =>
  get(filesRoute(id, "/search", query))

type Outcomes = Readonly<Record<string, { readonly detail?: string; readonly hint?: string }>>

const isOperation = (made: unknown): made is Operation =>
  typeof made === "object" && made !== null && "server_id" in made

/** Says that a change is made, or that it is not: at once, or once its operation has ended. */
export const tellChange = async (
  body: unknown,
  texts: { readonly fine: string; readonly refused: string },
  onChanged: () => void
): Promise<void> => {
  if (isOperation(body)) await tellOperation(body, { begun: "An operation has begun", ...texts })
  else done(texts.fine)
  onChanged()
}

/** Packs files into an archive of the server, which replaces an older one if `isReplacing`. */
export const packFiles = (
  id: string,
  paths: ReadonlyArray<string>,
  to: string,
  isReplacing: boolean
): Promise<Reply<unknown>> =>
  request("POST", filesRoute(id, "/pack"), {
    body: { paths, to, ...(isReplacing && { overwrite: "replace" }) }
  })

/** Changes files; some that were not changed are a failure. Many changes are an operation. */
export const changeFiles = async (
  id: string,
  route: "folder" | "move" | "copy" | "delete" | "mode" | "unpack",
  body: unknown
): Promise<Reply<unknown>> => {
  const address = filesRoute(id, `/${route}`)
  const reply = await request<Outcomes | Operation>("POST", address, { body, timeout: LONG })
  if (!reply.ok) return reply
  if (isOperation(reply.body)) return reply
  const refused = Object.entries(reply.body).filter(([, { detail }]) => detail !== undefined)
  const [first] = refused
  if (first === undefined) return reply
  const [path, { detail = "", hint = "" }] = first
  const others = refused.length > 1 ? ` And ${counted(refused.length - 1, "other")}.` : ""
  return { ok: false, code: 409, detail: `${legible(path)}: ${detail}.${others}`, hint }
}

/**
 * Lets the browser store what an address has, with a ticket: nothing is held in memory, and the key is in no address.
 * @param addressOf returns the address with a ticket, or without one
 */
export const storeAddress = async (addressOf: (ticket?: string) => string): Promise<void> => {
  // It fails as the download would, whose reason browsers do not show.
  const known = await probe(addressOf())
  if (!known.ok) return failed("Not downloaded", known)
  const issued = await post<{ readonly ticket: string }>("/api/events/tickets")
  if (!issued.ok) return failed("Not downloaded", issued)
  const link = document.createElement("a")
  link.href = addressOf(issued.body.ticket)
  link.download = ""
  link.click()
}

export const downloadFile = (id: string, path: string): Promise<void> =>
  storeAddress((ticket) => filesRoute(id, "/content", { path, ticket }))

export const downloadArchive = (id: string, path: ReadonlyArray<string>): Promise<void> =>
  storeAddress((ticket) => filesRoute(id, "/archive", { path, format: "zip", ticket }))

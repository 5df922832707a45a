/** The operations that the key may see, and their changes (spec 11). Those that have ended stay for a day. */
import { effect, signal } from "@preact/signals"
import { get, request, segment } from "../api/http.ts"
import type { Operation, Right } from "../api/types.ts"
import { bytes, count } from "../dom/format.ts"
import { connection, onEvent } from "./live.ts"
import { announce, done, failed } from "./notices.ts"
import { nameOf } from "./servers.ts"

/** Operations that the page keeps. */
const MOST = 50

/** Newest first. */
export const operations = signal<ReadonlyArray<Operation>>([])
/** The ids of operations that the reader has cancelled, and that have not ended yet. */
export const cancelling = signal<ReadonlySet<string>>(new Set())

const titles: Readonly<Record<string, string>> = {
  "backup.create": "Back up",
  "backup.verify": "Check a backup",
  "backup.restore": "Restore a backup",
  "backup.drill": "Drill of a backup",
  "files.change": "Change files",
  "files.pack": "Pack files",
  "files.unpack": "Unpack an archive"
}

export const titleOf = ({ kind }: Operation): string => titles[kind] ?? kind

/** Returns the right that cancels an operation (spec 11.3). */
export const rightOf = ({ kind }: Operation): Right =>
  kind === "backup.restore" || kind === "backup.drill"
    ? "restore"
    : kind.startsWith("backup.")
      ? "backups"
      : "files"

export const isUnfinished = ({ state }: Operation): boolean => state === "queued" || state === "running"

/** Returns the figures in words; empty while they are unknown. */
export const figuresOf = ({ progress }: Operation): string => {
  if (progress === undefined) return ""
  const { done, total, unit, waiting } = progress
  if (waiting !== undefined) return `Waits: ${waiting}`
  const shown = unit === "bytes" ? bytes : count
  return `${shown(done)}${total === 0 ? "" : ` of ${shown(total)}`}${unit === "files" ? " files" : ""}`
}

const waiting = new Map<string, (end: Operation) => void>()

const put = (operation: Operation): void => {
  const before = operations.value.find(({ id }) => id === operation.id)
  // Figures may arrive after the end.
  if (before !== undefined && !isUnfinished(before)) return
  const others = operations.value.filter(({ id }) => id !== operation.id)
  operations.value = [operation, ...others]
    .toSorted((one, other) => (one.created_at < other.created_at ? 1 : -1))
    .slice(0, MOST)
  if (isUnfinished(operation)) return
  cancelling.value = new Set([...cancelling.value].filter((id) => id !== operation.id))
  if (before !== undefined)
    announce(`${titleOf(operation)} of ${nameOf(operation.server_id)}: ${operation.state}`)
  waiting.get(operation.id)?.(operation)
  waiting.delete(operation.id)
}

const load = async (): Promise<void> => {
  const reply = await get<ReadonlyArray<Operation>>(`/api/operations?limit=${MOST}`)
  if (reply.ok) for (const operation of reply.body.toReversed()) put(operation)
}

/** Reads the operations whenever the stream has begun again, and follows their changes. */
export const followOperations = (): (() => void) => {
  const forget = onEvent(({ Data, Topic }) => {
    if (Topic === "operation") put(Data.payload)
  })
  const end = effect(() => {
    if (connection.value.state === "live") void load()
  })
  return () => {
    forget()
    end()
    waiting.clear()
    operations.value = []
  }
}

/** Returns an operation once it has ended. */
export const ended = (begun: Operation): Promise<Operation> => {
  put(begun)
  const known = operations.value.find(({ id }) => id === begun.id) ?? begun
  return isUnfinished(known)
    ? new Promise((resolve) => waiting.set(begun.id, resolve))
    : Promise.resolve(known)
}

/** Says that an operation has begun, and what came of it once it has ended. */
export const tellOperation = async (
  begun: Operation,
  texts: {
    readonly begun: string
    readonly fine: string
    /** Follows `fine`. */
    readonly detail?: string
    readonly refused: string
  }
): Promise<void> => {
  done(texts.begun, "Operations, at the top of the page, has its progress.")
  const { reason, state } = await ended(begun)
  if (state !== "done") failed(texts.refused, { detail: reason ?? "It was cancelled.", hint: "" })
  // What it has left out stays until it is read.
  else if (reason !== undefined) failed(texts.fine, { detail: reason, hint: texts.detail ?? "" })
  else done(texts.fine, texts.detail)
}

export const cancelOperation = async (operation: Operation): Promise<void> => {
  cancelling.value = new Set([...cancelling.value, operation.id])
  const reply = await request<Operation>("DELETE", `/api/operations/${segment(operation.id)}`)
  if (reply.ok) return put(reply.body)
  cancelling.value = new Set([...cancelling.value].filter((id) => id !== operation.id))
  failed("Not cancelled", reply)
}

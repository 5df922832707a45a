/** The servers that the list shows: filtered and sorted a few times a second at most, however fast they change. */
import { effect, signal } from "@preact/signals"
import { counted } from "../dom/format.ts"
import { type Column, conditionsOf, type Filter, filter, matcherOf } from "./filter.ts"
import { announce } from "./notices.ts"
import { addressText, hasFailed, type Row, titleOf } from "./rows.ts"
import { changes, isCut, membership, narrow, rows } from "./servers.ts"
import { readAllStats, sampled, samples } from "./stats.ts"

/** Milliseconds between two sorts. */
const EVERY = 250
/** Milliseconds between two readings of all figures, while the list is sorted by them. */
const FIGURES = 15_000

export const listed = signal<ReadonlyArray<string>>([])
/** Servers by status, of all; `failed`: those that need a look. */
export const tallies = signal<Readonly<Record<string, number>>>({})

const order = ["running", "starting", "stopping", "installing", "paused", "unknown", "offline"]

const memoryOf = ({ id }: Row) => samples.get(id)?.stats.memory_bytes ?? -1
const cpuOf = ({ id }: Row) => samples.get(id)?.stats.cpu_absolute ?? -1
const uptimeOf = ({ id, status }: Row) => (status === "running" ? (samples.get(id)?.stats.uptime ?? -1) : -1)

const keys: Readonly<Record<Column, (row: Row) => string | number>> = {
  name: (row) => titleOf(row).toLowerCase(),
  status: (row) => order.indexOf(row.status),
  blueprint: ({ blueprint_id }) => blueprint_id,
  node: ({ node_name }) => node_name,
  address: addressText,
  memory: memoryOf,
  cpu: cpuOf,
  uptime: uptimeOf,
  created: ({ created_at = "" }) => created_at
}

const needsFigures = ({ sort }: Filter): boolean => sort === "memory" || sort === "cpu" || sort === "uptime"

const select = (wanted: Filter): ReadonlyArray<string> => {
  const matches = matcherOf(wanted)
  const keyOf = keys[wanted.sort]
  const found: Array<{ readonly id: string; readonly key: string | number; readonly at: number }> = []
  let at = 0
  for (const row of rows.values()) if (matches(row)) found.push({ id: row.id, key: keyOf(row), at: at++ })
  const sign = wanted.descending ? -1 : 1
  // Servers with equal keys stay in the order of their creation.
  found.sort((one, other) =>
    one.key < other.key ? -sign : one.key > other.key ? sign : sign * (one.at - other.at)
  )
  return found.map(({ id }) => id)
}

const same = (one: ReadonlyArray<string>, other: ReadonlyArray<string>): boolean =>
  one.length === other.length && one.every((id, index) => id === other[index])

let seen: { readonly filter: Filter; readonly changes: number; readonly sampled: number } | undefined
let timer: ReturnType<typeof setTimeout> | undefined
let last = 0

const tally = (): void => {
  const found: Record<string, number> = {}
  for (const row of rows.values()) {
    found[row.status] = (found[row.status] ?? 0) + 1
    if (hasFailed(row)) found.failed = (found.failed ?? 0) + 1
  }
  tallies.value = found
}

const update = (): void => {
  timer = undefined
  last = performance.now()
  const isOther = seen?.filter !== filter.peek()
  seen = { filter: filter.peek(), changes: changes.peek(), sampled: sampled.peek() }
  const next = select(seen.filter)
  tally()
  if (!same(next, listed.peek())) listed.value = next
  if (isOther) announce(`${counted(next.length, "server")} listed`)
}

effect(() => {
  changes.value
  membership.value
  const isOther = seen?.filter !== filter.value
  if (needsFigures(filter.value)) sampled.value
  if (isOther) {
    clearTimeout(timer)
    if (isCut.peek()) narrow(conditionsOf(filter.value))
    update()
  } else timer ??= setTimeout(update, Math.max(0, EVERY - (performance.now() - last)))
})

effect(() => {
  if (!needsFigures(filter.value)) return
  void readAllStats()
  const repeated = setInterval(() => void readAllStats(), FIGURES)
  return () => clearInterval(repeated)
})

/** The ids of the selected servers. */
export const selection = signal<ReadonlySet<string>>(new Set())
/** The position of the keyboard in the list; -1: none. */
export const active = signal(-1)

let anchor = -1

export const clearSelection = (): void => {
  selection.value = new Set()
  anchor = -1
}

export const toggle = (id: string): void => {
  const next = new Set(selection.value)
  if (!next.delete(id)) next.add(id)
  selection.value = next
  anchor = listed.value.indexOf(id)
}

/** Selects all servers from the last toggled one to this one. */
export const extendTo = (id: string): void => {
  const to = listed.value.indexOf(id)
  const from = anchor === -1 ? to : anchor
  const range = listed.value.slice(Math.min(from, to), Math.max(from, to) + 1)
  selection.value = new Set([...selection.value, ...range])
  if (anchor === -1) anchor = to
}

export const selectAll = (): void => {
  selection.value = new Set(listed.value)
}

export const retain = (isThere: (id: string) => boolean): void => {
  if ([...selection.value].every(isThere)) return
  selection.value = new Set([...selection.value].filter(isThere))
}

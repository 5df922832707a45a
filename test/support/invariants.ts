/** Invariants of an idle service, after any history. Each function returns the violations. */

import { type JournalEntry, serverOf } from "../../src/contract/domain/Journal.ts"
import { committedMemoryBytes } from "../../src/contract/domain/Limits.ts"
import type { ServerRecord } from "../../src/contract/domain/Server.ts"
import { fits, isUp, type ServerStatus } from "../../src/contract/domain/ServerStatus.ts"
import type { ServerProcess } from "./processes.ts"

export interface PortRow {
  readonly address: string
  readonly port: number
  readonly server_id: string
}

/** A server in the list with `include=status,limits`. */
export interface ListedServer {
  readonly id: string
  readonly status: ServerStatus
  readonly limits: { readonly memory_limit?: number }
  readonly allocations: {
    readonly default: { readonly ip: string; readonly port: number }
    readonly mappings: Readonly<Record<string, ReadonlyArray<number>>>
  }
}

/** An entry of the journal; `server_id` is absent or empty if it is about something else. */
interface OrderedEntry {
  readonly cursor: number
  readonly topic: string
  readonly server_id?: string | undefined
}

/** Topics of what may happen after the deletion of a server: its files on a node, its operations, backups and runs end. */
const afterDeletion: ReadonlySet<string> = new Set([
  "server:left",
  "server:suspect",
  "server:operation",
  "server:backup",
  "server:schedule"
])

/** Whether an entry is about an existing server. */
export const isOfServer = <E extends OrderedEntry>(entry: E): entry is E & { readonly server_id: string } =>
  entry.server_id !== undefined && entry.server_id !== "" && !afterDeletion.has(entry.topic)

/**
 * Cursors have no gap; each server has one creation, and its entries are between that and its deletion. A server of
 * `undeleted` may be created again after its deletion.
 */
export const orderProblems = (
  journal: ReadonlyArray<OrderedEntry>,
  undeleted: ReadonlySet<string> = new Set()
): ReadonlyArray<string> => {
  const created = new Set<string>()
  const deleted = new Set<string>()
  return journal.flatMap((entry, index) => {
    const { cursor, topic } = entry
    const gap = cursor === index + 1 ? [] : [`entry ${cursor} is number ${index + 1}`]
    if (!isOfServer(entry)) return gap
    const { server_id } = entry
    const at = `entry ${cursor} (${topic} of ${server_id})`
    const isCreation = topic === "server:created"
    if (isCreation && undeleted.has(server_id) && deleted.delete(server_id)) created.delete(server_id)
    const isFirst = !created.has(server_id)
    const problems = [
      ...gap,
      ...(isFirst && !isCreation ? [`${at} comes before its creation`] : []),
      ...(!isFirst && isCreation ? [`${at}: created twice`] : []),
      ...(deleted.has(server_id) ? [`${at} comes after its deletion`] : [])
    ]
    created.add(server_id)
    if (topic === "deleted") deleted.add(server_id)
    return problems
  })
}

/** The journal has no gap and no contradiction, in itself and with the records. */
export const journalProblems = (
  journal: ReadonlyArray<JournalEntry>,
  records: ReadonlyArray<ServerRecord>
): ReadonlyArray<string> => {
  const entries = journal.map(({ change, cursor }) => ({
    cursor,
    topic: change.topic,
    server_id: serverOf(change)
  }))
  const problems = [...orderProblems(entries)]
  const last = new Map<string, ServerStatus>()
  for (const { change, cursor } of journal) {
    if (change.topic !== "status") continue
    const { payload, server_id } = change
    const before = last.get(server_id)
    const at = `entry ${cursor} (status of ${server_id})`
    if (before === payload) problems.push(`${at}: ${before} twice`)
    if (before !== undefined && !fits(before, payload)) {
      problems.push(`${at}: ${before} to ${payload} is not in the table`)
    }
    last.set(server_id, payload)
  }
  const idsOf = (topic: string) =>
    new Set<string>(entries.flatMap((entry) => (entry.topic === topic ? (entry.server_id ?? []) : [])))
  const deleted = idsOf("deleted")
  for (const { id, status } of records) {
    if (deleted.has(id)) problems.push(`${id} is deleted and has a record`)
    if (last.get(id) !== status) problems.push(`${id} is ${status}, its last event says ${last.get(id)}`)
  }
  const kept = new Set<string>(records.map((record) => record.id))
  for (const id of idsOf("server:created")) {
    if (!kept.has(id) && !deleted.has(id)) problems.push(`${id} is gone without an event`)
  }
  return problems
}

const portsOf = (server: ListedServer): ReadonlyArray<string> =>
  Object.entries(server.allocations.mappings).flatMap(([address, ports]) =>
    ports.map((port) => `${address}:${port}`)
  )

/** No port is leaked, held twice, or out of range. */
export const portProblems = (
  listed: ReadonlyArray<ListedServer>,
  rows: ReadonlyArray<PortRow>,
  range: { readonly address: string; readonly first: number; readonly last: number }
): ReadonlyArray<string> => {
  const problems: Array<string> = []
  const holders = new Map<string, string>()
  for (const server of listed) {
    for (const port of portsOf(server)) {
      const other = holders.get(port)
      if (other !== undefined) problems.push(`${port} is held by ${other} and ${server.id}`)
      holders.set(port, server.id)
      const number = Number(port.slice(port.lastIndexOf(":") + 1))
      if (number < range.first || number > range.last) problems.push(`${port} is out of range`)
    }
    const { ip, port } = server.allocations.default
    if (!portsOf(server).includes(`${ip}:${port}`))
      problems.push(`${server.id} does not hold its default port`)
  }
  for (const { address, port, server_id } of rows) {
    const holder = holders.get(`${address}:${port}`)
    if (holder !== server_id) problems.push(`${address}:${port} is kept for ${server_id}, held by ${holder}`)
  }
  if (rows.length !== holders.size) problems.push(`${rows.length} ports are kept, ${holders.size} are held`)
  return problems
}

/** Every process is of a running server, and every running server has a process. */
export const processProblems = (
  listed: ReadonlyArray<ListedServer>,
  processes: ReadonlyArray<ServerProcess>
): ReadonlyArray<string> => {
  const up = new Map(listed.filter(({ status }) => isUp(status)).map(({ id }) => [id, 0]))
  const problems: Array<string> = []
  for (const { command, pid, server } of processes) {
    const count = up.get(server)
    if (count === undefined) problems.push(`process ${pid} (${command}) of ${server}, which is not up`)
    else up.set(server, count + (command.includes("muster-shim") ? 0 : 1))
  }
  for (const [id, count] of up) if (count !== 1) problems.push(`${id} is up and has ${count} processes`)
  return problems
}

/** The memory that placement commits for these servers. */
export const committedMemory = (listed: ReadonlyArray<ListedServer>): number =>
  listed.reduce((sum, server) => sum + committedMemoryBytes(server.limits), 0)

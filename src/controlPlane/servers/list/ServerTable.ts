import { revisionOf } from "../../../contract/domain/compareDefinitions.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { type Change, type JournalEntry, serverOf } from "../../../contract/domain/Journal.ts"
import { admits, type RestrictedServer, type Restriction } from "../../../contract/domain/Key.ts"
import { byTurn } from "../../../contract/domain/RunRule.ts"
import type { Server, ServerRecord } from "../../../contract/domain/Server.ts"
import { isUp, ServerStatus } from "../../../contract/domain/ServerStatus.ts"
import type { Today } from "../../blueprints/BlueprintStore.ts"
import { etagOf } from "../../http/conditional.ts"
import { type ListRequest, matches } from "./listQuery.ts"
import { has, type Include, isQueued, type ListedServer, plain, summaryOf } from "./summary.ts"

type Place = Pick<ServerRecord, "id" | "created_at">

/** A part of the list. `next` is the last server of a page, unless the page is the last. */
export interface Selection {
  readonly ids: ReadonlyArray<ServerId>
  readonly next: ServerId | undefined
}

interface DeletedServer extends Place, RestrictedServer {
  readonly name: string | null | undefined
  readonly summary: Server
}

/** Deleted servers in memory, for callers that page on from one and for event filters. */
const DELETED = 10_000

/** Each takes about 0.6 KiB; longer summaries are encoded at each read. */
const MOST_ENCODED = 50_000
const LONGEST_ENCODED = 2048

interface EncodedSummary {
  readonly record: ListedServer
  readonly include: Include
  readonly node_name: string
  readonly json: string
  etag?: string
}

const none: ReadonlySet<ServerId> = new Set()

const isBefore = (one: Place, other: Place): boolean =>
  one.created_at < other.created_at || (one.created_at === other.created_at && one.id < other.id)

const fieldsOf = (change: Change): Partial<ListedServer> | undefined => {
  switch (change.topic) {
    case "status":
      return {
        status: change.payload,
        ...(isUp(change.payload) ? { transient: false } : {}),
        ...(change.payload === "offline" ? {} : { crashed: false })
      }
    case "server:transient":
      return { transient: change.payload }
    case "server:install":
      return { install: change.payload }
    case "server:start-pending":
      return { start_pending: change.payload }
    case "server:restart":
      return { restart: change.payload }
    case "server:run":
      return { run: change.payload }
    case "server:problem":
      return { problem: change.payload }
    case "server:placed":
      return change.payload
    case "server:crash-recorded":
      return { last_crash: change.payload, crashed: true }
    default:
      return undefined
  }
}

const withSettings = (
  { expires_at: _, name: __, overrides: ___, ...record }: ListedServer,
  { blueprint_id, definition, expires_at, labels, name, overrides, redefinition }: ServerRecord
): ListedServer => ({
  ...record,
  blueprint_id,
  definition,
  labels,
  ...(name === undefined ? {} : { name }),
  ...(expires_at === undefined ? {} : { expires_at }),
  ...(overrides === undefined ? {} : { overrides }),
  ...(redefinition === undefined ? {} : { redefinition })
})

/** The servers in memory, by creation, then id. */
export class ServerTable {
  readonly #records = new Map<ServerId, ListedServer>()
  /** Sorted by {@link isBefore}. */
  #order: Array<Place> = []
  #orderings = 0
  readonly #byNode = new Map<NodeId, Set<ServerId>>()
  readonly #counts = new Map<ServerStatus, number>(ServerStatus.literals.map((status) => [status, 0]))
  /** By node: the places, from 1, of servers that wait for their start. Unset after a change. */
  readonly #queues = new Map<NodeId, ReadonlyMap<ServerId, number>>()
  readonly #deleted = new Map<ServerId, DeletedServer>()
  /** A list of 200 servers costs half as much again without. */
  readonly #encoded = new Map<ServerId, EncodedSummary>()
  readonly #nameOf: (node_id: NodeId) => string
  #today: Today | undefined

  constructor(nameOf: (node_id: NodeId) => string) {
    this.#nameOf = nameOf
  }

  /** Compares definitions with today's from now on. Returns whether today's have changed. */
  compareWith(today: Today): boolean {
    if (this.#today === today) return false
    this.#today = today
    return true
  }

  get size(): number {
    return this.#records.size
  }

  get counts(): ReadonlyMap<ServerStatus, number> {
    return new Map(this.#counts)
  }

  get waiting(): number {
    let count = 0
    for (const record of this.#records.values()) if (isQueued(record)) count += 1
    return count
  }

  get(id: ServerId): ListedServer | undefined {
    return this.#records.get(id)
  }

  onNode(node_id: NodeId): ReadonlyArray<ListedServer> {
    const found: Array<ListedServer> = []
    for (const id of this.#byNode.get(node_id) ?? none) {
      const record = this.#records.get(id)
      if (record !== undefined) found.push(record)
    }
    return found
  }

  withPrefix(prefix: string, limit: number, within?: Restriction): ReadonlyArray<ServerId> {
    const found: Array<ServerId> = []
    for (const [id, record] of this.#records) {
      if (id.startsWith(prefix) && admits(within, record) && found.push(id) === limit) break
    }
    return found
  }

  /** Yields the servers after a place, by creation. Servers may be added and removed meanwhile. */
  *after(place?: Place): Generator<ListedServer, void, void> {
    let at = place === undefined ? 0 : this.#indexAfter(place)
    for (let next = this.#order[at]; next !== undefined; next = this.#order[at]) {
      const orderings = this.#orderings
      const record = this.#records.get(next.id)
      if (record !== undefined) yield record
      at = orderings === this.#orderings ? at + 1 : this.#indexAfter(next)
    }
  }

  /** Selects the servers of a request in steps, unless `after` is no admitted or recently deleted server. */
  *select({ after, filter, limit }: ListRequest): Generator<void, Selection | undefined> {
    const place = after === undefined ? undefined : (this.#records.get(after) ?? this.#deleted.get(after))
    if (after !== undefined && (place === undefined || !admits(filter.within, place))) return undefined
    const ids: Array<ServerId> = []
    for (const record of this.after(place)) {
      if (matches(filter, record)) {
        if (ids.length === limit) return { ids, next: ids.at(-1) }
        ids.push(record.id)
      }
      yield
    }
    return { ids, next: undefined }
  }

  load(records: ReadonlyArray<ListedServer>): void {
    for (const record of records) this.#attach(record)
    this.#order = records
      .map(({ created_at, id }) => ({ created_at, id }))
      .sort((one, other) => (isBefore(one, other) ? -1 : 1))
  }

  /**
   * Applies an entry of the journal.
   * @param row the present row of a server that was created or changed, unless it is deleted
   */
  apply({ at, change }: Pick<JournalEntry, "at" | "change">, row: ServerRecord | undefined): void {
    const id = serverOf(change)
    const before = id === undefined ? undefined : this.#records.get(id)
    if (change.topic === "server:created") {
      if (row !== undefined) this.put(row)
    } else if (change.topic === "deleted") {
      this.remove(change.server_id)
    } else if (before !== undefined) {
      const updated_at = new Date(at).toISOString()
      const fields = fieldsOf(change)
      if (fields !== undefined) this.put({ ...before, ...fields, updated_at })
      else if (change.topic === "server:changed" && row !== undefined)
        this.put({ ...withSettings(before, row), updated_at })
    }
  }

  put(record: ListedServer): void {
    const { created_at, id } = record
    const before = this.#records.get(id)
    if (before !== undefined) this.#detach(before, record.node_id)
    if (before?.created_at !== created_at) {
      if (before !== undefined) this.#unorder(before)
      this.#order.splice(this.#indexAfter(record), 0, { created_at, id })
      this.#orderings += 1
    }
    this.#attach(record)
    this.#deleted.delete(id)
    this.#requeue(before, record)
  }

  remove(id: ServerId): void {
    const record = this.#records.get(id)
    if (record === undefined) return
    const { blueprint_id, created_at, labels, name } = record
    this.#unorder(record)
    this.#records.delete(id)
    this.#encoded.delete(id)
    this.#detach(record)
    this.#requeue(record)
    const summary = summaryOf(record, this.#nameOf(record.node_id), plain)
    this.#deleted.set(id, { id, blueprint_id, created_at, labels, name, summary })
    const [oldest] = this.#deleted.keys()
    if (this.#deleted.size > DELETED && oldest !== undefined) this.#deleted.delete(oldest)
  }

  /** JSON of one summary. With `isKept` it is kept for the next read with the same fields. */
  summary(id: ServerId, include: Include, isKept = true): string | undefined {
    const record = this.#records.get(id)
    if (record === undefined) return undefined
    const node_name = this.#nameOf(record.node_id)
    const kept = this.#encoded.get(id)
    if (kept?.record === record && kept.include === include && kept.node_name === node_name) return kept.json
    const json = JSON.stringify(summaryOf(record, node_name, include, this.#isOutdated, this.#placeOf))
    // These fields change without the record.
    if (!isKept || json.length > LONGEST_ENCODED || has(include, "definition") || isQueued(record))
      return json
    if (this.#encoded.size >= MOST_ENCODED) this.#encoded.clear()
    this.#encoded.set(id, { record, include, node_name, json })
    return json
  }

  /** {@link summary} with its tag, which is kept with it: to hash the text takes a tenth of a read. */
  tagged(id: ServerId, include: Include): { readonly body: string; readonly etag: string } | undefined {
    const body = this.summary(id, include)
    if (body === undefined) return undefined
    const kept = this.#encoded.get(id)
    if (kept?.json !== body) return { body, etag: etagOf(body) }
    kept.etag ??= etagOf(body)
    return { body, etag: kept.etag }
  }

  latest(id: ServerId): Server | undefined {
    const record = this.#records.get(id)
    return record === undefined
      ? this.#deleted.get(id)?.summary
      : summaryOf(record, this.#nameOf(record.node_id), plain)
  }

  factsOf(id: ServerId): RestrictedServer | undefined {
    return this.#records.get(id) ?? this.#deleted.get(id)
  }

  nameOf(id: ServerId): string | undefined {
    return (this.#records.get(id) ?? this.#deleted.get(id))?.name ?? undefined
  }

  readonly #isOutdated = (record: ServerRecord): boolean => {
    const revision = this.#today?.revision(record.blueprint_id, record.overrides)
    return revision !== undefined && revision !== revisionOf(record.definition)
  }

  readonly #placeOf = ({ id, node_id }: ListedServer): number => {
    const queue =
      this.#queues.get(node_id) ??
      new Map(
        this.onNode(node_id)
          .filter(isQueued)
          .toSorted(byTurn)
          .map((record, at) => [record.id, at + 1])
      )
    this.#queues.set(node_id, queue)
    return queue.get(id) ?? 1
  }

  /** Forgets the places on the nodes where a record waits, or has waited, for its start. */
  #requeue(...records: ReadonlyArray<ListedServer | undefined>): void {
    for (const record of records)
      if (record !== undefined && isQueued(record)) this.#queues.delete(record.node_id)
  }

  #attach(record: ListedServer): void {
    const { id, node_id, status } = record
    this.#records.set(id, record)
    this.#byNode.set(node_id, (this.#byNode.get(node_id) ?? new Set()).add(id))
    this.#counts.set(status, (this.#counts.get(status) ?? 0) + 1)
  }

  /** Takes a record out of the counts, and out of its node unless it stays there: a change keeps its place. */
  #detach({ id, node_id, status }: ServerRecord, next?: NodeId): void {
    const others = this.#byNode.get(node_id)
    if (next !== node_id) others?.delete(id)
    if (others?.size === 0) this.#byNode.delete(node_id)
    this.#counts.set(status, (this.#counts.get(status) ?? 0) - 1)
  }

  #unorder(place: Place): void {
    this.#order.splice(this.#indexAfter(place) - 1, 1)
    this.#orderings += 1
  }

  #indexAfter(place: Place): number {
    let [low, high] = [0, this.#order.length]
    while (low < high) {
      const middle = (low + high) >> 1
      const other = this.#order[middle]
      if (other !== undefined && isBefore(place, other)) high = middle
      else low = middle + 1
    }
    return low
  }
}

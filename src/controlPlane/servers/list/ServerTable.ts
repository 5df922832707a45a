import { revisionOf } from "../../../contract/domain/definitionChanges.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { admits, type RestrictedServer, type Restriction } from "../../../contract/domain/Key.ts"
import { byTurn } from "../../../contract/domain/Run.ts"
import type { Server, ServerRecord } from "../../../contract/domain/Server.ts"
import { ServerStatus } from "../../../contract/domain/ServerStatus.ts"
import type { Today } from "../../blueprints/today.ts"
import { type ListRequest, matches } from "./ServerFilter.ts"
import { type Encoded, SummaryCache } from "./SummaryCache.ts"
import {
  encodeSummary,
  has,
  type Include,
  isQueued,
  type ListedServer,
  plain,
  showsDefinition,
  summaryOf
} from "./summary.ts"

type Place = Pick<ServerRecord, "id" | "created_at">

/** A part of the list. `next` is the last server of a page, unless the page is the last. */
interface Selection {
  readonly ids: ReadonlyArray<ServerId>
  readonly next: ServerId | undefined
}

interface DeletedServer extends Place, RestrictedServer {
  readonly name: string | null | undefined
  readonly summary: Server
}

/** Deleted servers in memory, for callers that page on from one and for event filters. */
const DELETED = 10_000

const none: ReadonlySet<ServerId> = new Set()

const isBefore = (one: Place, other: Place): boolean =>
  one.created_at < other.created_at || (one.created_at === other.created_at && one.id < other.id)

/** The servers in memory, by creation, then id, with their encoded summaries. */
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
  readonly #nameOf: (node_id: NodeId) => string
  readonly #cache: SummaryCache
  #today: Today | undefined

  constructor(nameOf: (node_id: NodeId) => string, cache = new SummaryCache()) {
    this.#nameOf = nameOf
    this.#cache = cache
  }

  /** Compares definitions with today's from now on. Returns whether today's have changed. */
  compareWith(today: Today): boolean {
    if (this.#today === today) return false
    this.#today = today
    this.#cache.clear(showsDefinition)
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
    this.#cache.forget(id)
    this.#requeue(before, record)
  }

  remove(id: ServerId): void {
    const record = this.#records.get(id)
    if (record === undefined) return
    const { blueprint_id, created_at, labels, name } = record
    this.#unorder(record)
    this.#records.delete(id)
    this.#detach(record)
    this.#cache.forget(id)
    this.#requeue(record, undefined)
    const summary = summaryOf(record, this.#nameOf(record.node_id), plain)
    this.#deleted.set(id, { id, blueprint_id, created_at, labels, name, summary })
    const [oldest] = this.#deleted.keys()
    if (this.#deleted.size > DELETED && oldest !== undefined) this.#deleted.delete(oldest)
  }

  /** Encodes the servers of a node again, as its display name may have changed. */
  rename(node_id: NodeId): void {
    for (const id of this.#byNode.get(node_id) ?? none) this.#cache.forget(id)
  }

  /** JSON of one summary. With `isKept` it stays in memory until the server changes. */
  summary(id: ServerId, include: Include, isKept = true): Encoded | undefined {
    const record = this.#records.get(id)
    if (record === undefined) return undefined
    const encode = () =>
      encodeSummary(record, this.#nameOf(record.node_id), include, this.#isOutdated, this.#placeOf)
    return this.#cache.get(include, id, encode, isKept)
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

  /** Encodes the servers again whose place in the queue may have changed. */
  #requeue(before: ListedServer | undefined, after: ListedServer | undefined): void {
    const was = before !== undefined && isQueued(before)
    const is = after !== undefined && isQueued(after)
    const isSame =
      was === is && (!is || (before?.node_id === after.node_id && before.definition === after.definition))
    if (isSame) return
    for (const node_id of new Set([before, after].flatMap((one) => one?.node_id ?? []))) {
      this.#queues.delete(node_id)
      for (const one of this.onNode(node_id).filter(isQueued)) {
        this.#cache.forget(one.id, (include) => has(include, "run"))
      }
    }
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

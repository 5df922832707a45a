import type { Today } from "../../blueprints/today.ts"
import { revisionOf } from "../../domain/definitionChanges.ts"
import type { NodeId, ServerId } from "../../domain/Id.ts"
import { admits, type RestrictedServer, type Restriction } from "../../domain/KeyLimits.ts"
import type { Server, ServerRecord } from "../../domain/Server.ts"
import { ServerStatus } from "../../domain/ServerStatus.ts"
import { DeletedServers } from "./DeletedServers.ts"
import { Encoded, EncodedChunk, EncodedList } from "./Encoded.ts"
import { everyServer, matches, type ServerFilter } from "./ServerFilter.ts"
import { type Chunk, type Place, ServerOrder } from "./ServerOrder.ts"
import { ServersByNode } from "./ServersByNode.ts"
import { type KnownChunk, SummaryCache, type Variant } from "./SummaryCache.ts"
import {
  encodeSummary,
  has,
  type Include,
  type ListedServer,
  plain,
  type Shown,
  shows,
  showsDefinition,
  summaryOf
} from "./summary.ts"
import { WaitingServers } from "./WaitingServers.ts"

const encoder = new TextEncoder()

/** The servers that a caller asks for, in the order of their creation. */
export interface ListRequest {
  readonly filter: ServerFilter
  readonly limit?: number
  /** The servers after this one. */
  readonly after?: ServerId
}

export const wholeList: ListRequest = { filter: everyServer }

/** A part of the list; `next`: the last server of a page that is not the last one. */
export interface Selection {
  readonly ids: ReadonlyArray<ServerId>
  readonly next: ServerId | undefined
}

/** Changed servers at a time beyond which everything is encoded again: to find the chunk of each takes longer. */
const MANY_CHANGES = 1_000

/**
 * Servers in memory, by creation, then id, with their encoded summaries. What was encoded is kept until it changes, within
 * the bound of the cache; so is the whole list.
 */
export class ServerTable {
  readonly #records = new Map<ServerId, ListedServer>()
  readonly #nodes: ServersByNode
  readonly #counts = new Map<ServerStatus, number>(ServerStatus.literals.map((status) => [status, 0]))
  readonly #order = new ServerOrder((id) => this.#records.get(id)?.created_at ?? "")
  readonly #deleted = new DeletedServers()
  readonly #cache: SummaryCache
  readonly #waiting = new WaitingServers()
  #today: Today | undefined

  /**
   * @param nameOf display name of a node
   * @param cache  what was encoded
   */
  constructor(nameOf: (node_id: NodeId) => string, cache = new SummaryCache()) {
    this.#nodes = new ServersByNode(nameOf)
    this.#cache = cache
  }

  /** Compares the definitions of servers with today's from now on. */
  compareWith(today: Today): void {
    if (this.#today === today) return
    this.#today = today
    this.#cache.clear(showsDefinition)
  }

  get counts(): ReadonlyMap<ServerStatus, number> {
    return new Map(this.#counts)
  }

  /** The number of servers that wait for their nodes to start them. */
  get waiting(): number {
    return this.#waiting.count
  }

  get ids(): ReadonlyArray<ServerId> {
    return this.#order.ids
  }

  get(id: ServerId): ListedServer | undefined {
    return this.#records.get(id)
  }

  /** Returns at most `limit` ids of admitted servers that begin with `prefix`. */
  withPrefix(prefix: string, limit: number, within?: Restriction): ReadonlyArray<ServerId> {
    const found: Array<ServerId> = []
    for (const [id, record] of this.#records) {
      if (id.startsWith(prefix) && admits(within, record) && found.push(id) === limit) break
    }
    return found
  }

  /** Yields the servers after a place, by creation; servers may be added and removed meanwhile. */
  *after(place?: Place): Generator<ListedServer, void, void> {
    let chunk = place === undefined ? this.#order.chunks[0] : this.#order.after(place)
    while (chunk !== undefined) {
      const last: Place | undefined = [...this.#each(chunk.slice(-1))][0]
      yield* this.#each(chunk)
      chunk = last === undefined ? undefined : this.#order.after(last)
    }
  }

  onNode(node_id: NodeId): ReadonlyArray<ServerRecord> {
    return [...this.#each(this.#nodes.on(node_id))]
  }

  /** Adds a record; one that is there is replaced. */
  add(record: ListedServer): void {
    const before = this.#records.get(record.id)
    if (before !== undefined) this.#detach(before)
    this.#deleted.forget(record.id)
    if (before?.created_at !== record.created_at) {
      if (before !== undefined) this.#order.remove(before)
      this.#order.add(record)
    }
    this.#attach(record)
    this.#forget([record.id])
    this.#requeue(before, record)
  }

  /** Adds the records of an empty table. */
  load(records: ReadonlyArray<ListedServer>): void {
    for (const record of records) {
      this.#attach(record)
      this.#waiting.change(undefined, record)
    }
    this.#order.addAll(records)
  }

  #attach(record: ListedServer): void {
    this.#records.set(record.id, record)
    this.#nodes.add(record)
    this.#count(record.status, 1)
  }

  /** Changes a record's fields that few summaries show. */
  update(
    id: ServerId,
    change: Partial<
      Pick<
        ListedServer,
        | "status"
        | "install"
        | "last_crash"
        | "start_pending"
        | "restart"
        | "run"
        | "problem"
        | "transient"
        | "crashed"
      >
    > &
      Pick<ServerRecord, "updated_at">
  ): void {
    const before = this.#records.get(id)
    if (before === undefined) return
    const after = { ...before, ...change }
    this.#records.set(id, after)
    const isStatus = after.status !== before.status
    if (isStatus) {
      this.#count(before.status, -1)
      this.#count(after.status, 1)
    }
    const shown: Shown = isStatus
      ? "status"
      : change.install !== undefined
        ? "install"
        : change.last_crash !== undefined
          ? "last_crash"
          : change.restart !== undefined
            ? "restart"
            : change.run !== undefined
              ? "run"
              : change.problem !== undefined
                ? "problem"
                : "other"
    this.#forget([id], (include) => shows(include, shown))
    this.#requeue(before, after)
  }

  remove(id: ServerId): void {
    const record = this.#records.get(id)
    if (record === undefined) return
    const { blueprint_id, created_at, labels, name } = record
    const summary = this.#summaryOf(record)
    this.#forget([id])
    this.#requeue(record, undefined)
    this.#order.remove(record)
    this.#records.delete(id)
    this.#detach(record)
    this.#deleted.add({ id, blueprint_id, created_at, summary, labels, name })
  }

  /** Encodes the servers of a node again if its display name has changed. */
  rename(node_id: NodeId): void {
    const renamed = this.#nodes.rename(node_id)
    if (renamed.size > 0) this.#forget(renamed)
  }

  /** JSON of one summary. */
  summary(id: ServerId, include: Include): Encoded | undefined {
    const record = this.#records.get(id)
    return record === undefined ? undefined : this.#piece(this.#cache.of(include), record)
  }

  /** Returns the plain summary of a server, or the last one of a server that was recently here. */
  latest(id: ServerId): Server | undefined {
    const record = this.#records.get(id)
    return record === undefined ? this.#deleted.get(id)?.summary : this.#summaryOf(record)
  }

  /** Returns the facts of a server for filters, or the last ones of a server that was recently here. */
  factsOf(id: ServerId): RestrictedServer | undefined {
    return this.#records.get(id) ?? this.#deleted.get(id)
  }

  /** Returns the name of a server, or the last one of a server that was recently here. */
  nameOf(id: ServerId): string | undefined {
    return (this.#records.get(id) ?? this.#deleted.get(id))?.name ?? undefined
  }

  /** JSON array of all summaries. */
  list(include: Include): EncodedList {
    const variant = this.#cache.of(include)
    const known = variant.list?.deref()
    if (known !== undefined) return known
    const chunks = new Map(this.#order.chunks.map((chunk) => [chunk, this.#chunk(variant, chunk)]))
    const isKept = this.#cache.keepChunks(variant, chunks)
    const list = new EncodedList(
      [...chunks.values()].map(({ encoded }) => encoded),
      isKept
    )
    variant.list = isKept ? { deref: () => list } : new WeakRef(list)
    return list
  }

  /** Returns the chunks of the list that are not encoded, each with the servers that are to be encoded. */
  missing(include: Include): ReadonlyMap<Chunk, ReadonlyArray<ServerId>> {
    const variant = this.#cache.of(include)
    const missing = new Map<Chunk, ReadonlyArray<ServerId>>()
    if (variant.list?.deref() !== undefined) return missing
    for (const chunk of this.#order.chunks) {
      const known = variant.known(chunk)
      if (known === undefined) missing.set(chunk, chunk)
      else if (known.changed.size > 0) missing.set(chunk, [...known.changed])
    }
    return missing
  }

  /** Keeps what {@link prepareChunk} makes until the list is done. Only one list may be pinned. */
  pin(include: Include, isPinned: boolean): void {
    this.#cache.of(include).isPinned = isPinned
  }

  /** Encodes chunks of the list ahead of the whole, in steps: to compare a definition takes long. */
  *prepare(chunks: ReadonlyMap<Chunk, ReadonlyArray<ServerId>>, include: Include): Generator<void, void> {
    for (const [chunk, ids] of chunks) {
      for (const record of showsDefinition(include) ? this.#each(ids) : []) {
        this.#isOutdated(record)
        yield
      }
      const variant = this.#cache.of(include)
      if (this.#order.has(chunk)) variant.made.set(chunk, this.#chunk(variant, chunk))
      yield
    }
  }

  /** Selects the servers of a request in steps; undefined: `after` is no admitted server that is or was recently here. */
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

  #summaryOf(record: ServerRecord): Server {
    return summaryOf(record, this.#nodes.nameOf(record.node_id), plain)
  }

  readonly #isOutdated = (record: ServerRecord): boolean => {
    const revision = this.#today?.revision(record.blueprint_id, record.overrides)
    return revision !== undefined && revision !== revisionOf(record.definition)
  }

  #piece(variant: Variant, record: ListedServer): Encoded {
    const known = variant.pieces.get(record.id)
    if (known !== undefined) return known
    const piece = new Encoded(this.#encode(variant, record))
    this.#cache.addPiece(variant, record.id, piece)
    return piece
  }

  #encode({ include }: Variant, record: ListedServer): string {
    return encodeSummary(
      record,
      this.#nodes.nameOf(record.node_id),
      include,
      this.#isOutdated,
      this.#waiting.placeOf
    )
  }

  #chunk(variant: Variant, chunk: Chunk): KnownChunk {
    const known = variant.known(chunk)
    if (known?.changed.size === 0) return known
    const pieces = [...this.#each(chunk)].map((record, at) =>
      known?.changed.has(record.id) === false
        ? known.encoded.piece(at)
        : encoder.encode(variant.pieces.get(record.id)?.body ?? this.#encode(variant, record))
    )
    return { encoded: new EncodedChunk(pieces), changed: new Set() }
  }

  readonly #chunkOf = (id: ServerId): Chunk | undefined => {
    const record = this.#records.get(id)
    return record === undefined ? undefined : this.#order.chunkOf(record)
  }

  #forget(
    ids: ReadonlyArray<ServerId> | ReadonlySet<ServerId>,
    isShown: (include: Include) => boolean = () => true
  ): void {
    const count = "size" in ids ? ids.size : ids.length
    if (count > MANY_CHANGES) this.#cache.clear(isShown)
    else this.#cache.forget(ids, this.#chunkOf, isShown)
  }

  /** Encodes the servers again whose place among those that wait is another. */
  #requeue(before: ListedServer | undefined, after: ListedServer | undefined): void {
    const moved = this.#waiting.change(before, after)
    if (moved.size > 0) this.#forget(moved, (include) => has(include, "run"))
  }

  /** Takes a record out of its node and the counts. */
  #detach(record: ServerRecord): void {
    this.#nodes.remove(record)
    this.#count(record.status, -1)
  }

  *#each(ids: Iterable<ServerId>): Generator<ListedServer, void, void> {
    for (const id of ids) {
      const record = this.#records.get(id)
      if (record !== undefined) yield record
    }
  }

  #count(status: ServerStatus, by: number): void {
    this.#counts.set(status, (this.#counts.get(status) ?? 0) + by)
  }
}

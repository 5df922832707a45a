import type { Today } from "../../blueprints/today.ts"
import { revisionOf } from "../../domain/definitionChanges.ts"
import type { NodeId, ServerId } from "../../domain/Id.ts"
import { admits, type RestrictedServer, type Restriction } from "../../domain/KeyLimits.ts"
import type { Server, ServerRecord } from "../../domain/Server.ts"
import { ServerStatus } from "../../domain/ServerStatus.ts"
import { DeletedServers } from "./DeletedServers.ts"
import { arrayOf, Encoded, EncodedChunk, EncodedList } from "./Encoded.ts"
import { everyServer, matches, type ServerFilter } from "./ServerFilter.ts"
import { type Chunk, ServerOrder } from "./ServerOrder.ts"
import { ServersByNode } from "./ServersByNode.ts"
import { SummaryCache, type Variant } from "./SummaryCache.ts"
import {
  encodeSummary,
  type Include,
  type ListedServer,
  plain,
  type Shown,
  shows,
  showsDefinition,
  summaryOf
} from "./summary.ts"

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
  readonly records: ReadonlyArray<ListedServer>
  readonly next: ServerId | undefined
}

/**
 * Servers in memory, by creation, then id, with their encoded summaries. What was encoded is kept until it changes; so
 * is the whole list.
 */
export class ServerTable {
  readonly #records = new Map<ServerId, ListedServer>()
  readonly #nodes: ServersByNode
  readonly #counts = new Map<ServerStatus, number>(ServerStatus.literals.map((status) => [status, 0]))
  readonly #order = new ServerOrder((id) => this.#records.get(id)?.created_at ?? "")
  readonly #deleted = new DeletedServers()
  readonly #cache = new SummaryCache()
  #today: Today | undefined

  /** @param nameOf display name of a node */
  constructor(nameOf: (node_id: NodeId) => string) {
    this.#nodes = new ServersByNode(nameOf)
  }

  /** Compares the definitions of servers with today's from now on. */
  compareWith(today: Today): void {
    if (this.#today === today) return
    this.#today = today
    this.#forget(this.ids, showsDefinition)
  }

  get counts(): ReadonlyMap<ServerStatus, number> {
    return new Map(this.#counts)
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

  get records(): ReadonlyArray<ListedServer> {
    return this.#pick(this.ids)
  }

  onNode(node_id: NodeId): ReadonlyArray<ServerRecord> {
    return this.#pick(this.#nodes.on(node_id))
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
  }

  /** Adds the records of an empty table. */
  load(records: ReadonlyArray<ListedServer>): void {
    for (const record of records) this.#attach(record)
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
      Pick<ListedServer, "status" | "install" | "last_crash" | "start_pending" | "restart" | "transient">
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
            : "other"
    this.#forget([id], (include) => shows(include, shown))
  }

  remove(id: ServerId): void {
    const record = this.#records.get(id)
    if (record === undefined) return
    const { blueprint_id, created_at, labels, name } = record
    const summary = this.#summaryOf(record)
    this.#forget([id])
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
    variant.list ??= new EncodedList(this.#order.chunks.map((chunk) => this.#chunk(variant, chunk)))
    return variant.list
  }

  /** Returns the servers of a request, by default of the whole list, whose summaries are not encoded. */
  missing(include: Include, request?: ListRequest): ReadonlyArray<ServerId> {
    const { chunks, pieces } = this.#cache.of(include)
    const ids =
      request === undefined
        ? this.#order.chunks.filter((chunk) => !chunks.has(chunk)).flat()
        : (this.select(request)?.records ?? []).map(({ id }) => id)
    return ids.filter((id) => !pieces.has(id))
  }

  /** Encodes the summaries of some servers as they are now. */
  prepare(ids: ReadonlyArray<ServerId>, include: Include): void {
    this.pieces(this.#pick(ids), include)
  }

  /** JSON array of some summaries. */
  encode(records: ReadonlyArray<ListedServer>, include: Include): Encoded {
    return new Encoded(arrayOf(this.pieces(records, include)))
  }

  /** JSON of each of some summaries. */
  pieces(records: ReadonlyArray<ListedServer>, include: Include): ReadonlyArray<Uint8Array> {
    const variant = this.#cache.of(include)
    return records.map((record) => this.#piece(variant, record).body)
  }

  /** Returns the servers of a request; undefined: `after` is no admitted server that is or was recently here. */
  select({ after, filter, limit = Number.POSITIVE_INFINITY }: ListRequest): Selection | undefined {
    const place = after === undefined ? undefined : (this.#records.get(after) ?? this.#deleted.get(after))
    if (after !== undefined && (place === undefined || !admits(filter.within, place))) return undefined
    const records: Array<ListedServer> = []
    for (const chunk of place === undefined ? this.#order.chunks : this.#order.after(place)) {
      for (const id of chunk) {
        const record = this.#records.get(id)
        if (record === undefined || !matches(filter, record)) continue
        if (records.length === limit) return { records, next: records.at(-1)?.id }
        records.push(record)
      }
    }
    return { records, next: undefined }
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
    const piece = new Encoded(
      encoder.encode(
        encodeSummary(record, this.#nodes.nameOf(record.node_id), variant.include, this.#isOutdated)
      )
    )
    variant.pieces.set(record.id, piece)
    return piece
  }

  #chunk(variant: Variant, chunk: Chunk): EncodedChunk {
    const known = variant.chunks.get(chunk)
    if (known !== undefined) return known
    const encoded = new EncodedChunk(this.#pick(chunk).map((record) => this.#piece(variant, record).body))
    variant.chunks.set(chunk, encoded)
    return encoded
  }

  readonly #chunkOf = (id: ServerId): Chunk | undefined => {
    const record = this.#records.get(id)
    return record === undefined ? undefined : this.#order.chunkOf(record)
  }

  #forget(
    ids: ReadonlyArray<ServerId> | ReadonlySet<ServerId>,
    isShown?: (include: Include) => boolean
  ): void {
    this.#cache.forget(ids, this.#chunkOf, isShown)
  }

  /** Takes a record out of its node and the counts. */
  #detach(record: ServerRecord): void {
    this.#nodes.remove(record)
    this.#count(record.status, -1)
  }

  #pick(ids: Iterable<ServerId>): ReadonlyArray<ListedServer> {
    const records: Array<ListedServer> = []
    for (const id of ids) {
      const record = this.#records.get(id)
      if (record !== undefined) records.push(record)
    }
    return records
  }

  #count(status: ServerStatus, by: number): void {
    this.#counts.set(status, (this.#counts.get(status) ?? 0) + by)
  }
}

import type { ServerRecord } from "../../domain/Server.ts"
import { ServerStatus } from "../../domain/ServerStatus.ts"
import type { Include } from "./summary.ts"
import { encodeSummary, showsStatus, VARIANTS, variantOf } from "./summary.ts"

/** A record and the JSON of its summary, by variant of `include=`; a piece is encoded when it is first read. */
interface Entry {
  record: ServerRecord
  readonly pieces: Array<Uint8Array | undefined>
}

const encoder = new TextEncoder()
const [open, comma, close] = [0x5b, 0x2c, 0x5d]

/**
 * Servers in memory, sorted by id, with their encoded summaries. What was encoded is kept until it changes; so is
 * the whole list.
 */
export class ServerTable {
  readonly #entries = new Map<string, Entry>()
  readonly #nodes = new Map<string, Set<string>>()
  readonly #names = new Map<string, string>()
  readonly #counts = new Map<ServerStatus, number>(ServerStatus.literals.map((status) => [status, 0]))
  readonly #nameOf: (node_id: string) => string
  readonly #sorted: Array<string> = []
  #ids: ReadonlyArray<string> | undefined
  readonly #lists: Array<Uint8Array | undefined> = new Array(VARIANTS)

  /** @param nameOf display name of a node */
  constructor(nameOf: (node_id: string) => string) {
    this.#nameOf = nameOf
  }

  get counts(): ReadonlyMap<ServerStatus, number> {
    return new Map(this.#counts)
  }

  get ids(): ReadonlyArray<string> {
    this.#ids ??= [...this.#sorted]
    return this.#ids
  }

  get(id: string): ServerRecord | undefined {
    return this.#entries.get(id)?.record
  }

  get records(): ReadonlyArray<ServerRecord> {
    return this.#pick(this.#sorted)
  }

  onNode(node_id: string): ReadonlyArray<ServerRecord> {
    return this.#pick(this.#nodes.get(node_id) ?? [])
  }

  /** Adds a record; one that is there is replaced. */
  add(record: ServerRecord): void {
    this.remove(record.id)
    this.#entries.set(record.id, { record, pieces: new Array(VARIANTS) })
    this.#sorted.splice(this.#position(record.id), 0, record.id)
    const onNode = this.#nodes.get(record.node_id)
    if (onNode === undefined) {
      this.#nodes.set(record.node_id, new Set([record.id]))
      this.#names.set(record.node_id, this.#nameOf(record.node_id))
    } else {
      onNode.add(record.id)
    }
    this.#count(record.status, 1)
    this.#forgetList()
  }

  /** Changes a record's fields that no summary but the status shows. */
  update(id: string, change: Partial<Pick<ServerRecord, "status" | "install" | "start_pending">>): void {
    const entry = this.#entries.get(id)
    if (entry === undefined) return
    const before = entry.record.status
    entry.record = { ...entry.record, ...change }
    if (entry.record.status === before) return
    this.#count(before, -1)
    this.#count(entry.record.status, 1)
    for (let variant = 0; variant < VARIANTS; variant++) {
      if (!showsStatus(variant)) continue
      entry.pieces[variant] = undefined
      this.#lists[variant] = undefined
    }
  }

  remove(id: string): void {
    const entry = this.#entries.get(id)
    if (entry === undefined) return
    this.#entries.delete(id)
    this.#sorted.splice(this.#position(id), 1)
    const { node_id, status } = entry.record
    const onNode = this.#nodes.get(node_id)
    onNode?.delete(id)
    if (onNode?.size === 0) {
      this.#nodes.delete(node_id)
      this.#names.delete(node_id)
    }
    this.#count(status, -1)
    this.#forgetList()
  }

  /** Encodes the servers of a node again if its display name has changed. */
  rename(node_id: string): void {
    const name = this.#nameOf(node_id)
    if (!this.#names.has(node_id) || this.#names.get(node_id) === name) return
    this.#names.set(node_id, name)
    for (const id of this.#nodes.get(node_id) ?? []) this.#entries.get(id)?.pieces.fill(undefined)
    this.#lists.fill(undefined)
  }

  /** JSON of one summary. */
  summary(id: string, include: Include): Uint8Array | undefined {
    const entry = this.#entries.get(id)
    return entry === undefined ? undefined : this.#piece(entry, include)
  }

  /** JSON array of all summaries, by id. */
  list(include: Include): Uint8Array {
    const variant = variantOf(include)
    const known = this.#lists[variant]
    if (known !== undefined) return known
    const pieces: Array<Uint8Array> = []
    let size = 2 + Math.max(0, this.#sorted.length - 1)
    for (const id of this.#sorted) {
      const entry = this.#entries.get(id)
      if (entry === undefined) continue
      const piece = this.#piece(entry, include)
      pieces.push(piece)
      size += piece.length
    }
    const list = new Uint8Array(size)
    list[0] = open
    let at = 1
    for (const piece of pieces) {
      if (at > 1) list[at++] = comma
      list.set(piece, at)
      at += piece.length
    }
    list[at] = close
    this.#lists[variant] = list
    return list
  }

  #piece(entry: Entry, include: Include): Uint8Array {
    const variant = variantOf(include)
    const known = entry.pieces[variant]
    if (known !== undefined) return known
    const { record } = entry
    const name = this.#names.get(record.node_id) ?? this.#nameOf(record.node_id)
    const piece = encoder.encode(encodeSummary(record, name, include))
    entry.pieces[variant] = piece
    return piece
  }

  #pick(ids: Iterable<string>): ReadonlyArray<ServerRecord> {
    const records: Array<ServerRecord> = []
    for (const id of ids) {
      const entry = this.#entries.get(id)
      if (entry !== undefined) records.push(entry.record)
    }
    return records
  }

  #count(status: ServerStatus, by: number): void {
    this.#counts.set(status, (this.#counts.get(status) ?? 0) + by)
  }

  #forgetList(): void {
    this.#ids = undefined
    this.#lists.fill(undefined)
  }

  /** Where `id` is or belongs; new ids are nearly always the greatest. */
  #position(id: string): number {
    let low = 0
    let high = this.#sorted.length
    if ((this.#sorted[high - 1] ?? "") < id) return high
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#sorted[middle] ?? "") < id) low = middle + 1
      else high = middle
    }
    return low
  }
}

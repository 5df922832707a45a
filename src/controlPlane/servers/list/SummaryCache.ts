import type { ServerId } from "../../../contract/domain/Id.ts"
import type { ServerStats } from "../../../contract/domain/Server.ts"
import { etagOf } from "../../http/conditional.ts"
import type { Include } from "./summary.ts"

export class Encoded {
  readonly body: string
  #etag: string | undefined

  constructor(body: string) {
    this.body = body
  }

  get etag(): string {
    this.#etag ??= etagOf(this.body)
    return this.#etag
  }
}

export const withStats = ({ body }: Pick<Encoded, "body">, stats: ServerStats | null): Encoded =>
  new Encoded(`${body.slice(0, -1)},"stats":${JSON.stringify(stats)}}`)

/** Sets of fields in the cache. Each change of a server concerns all of them. */
const MAX_VARIANTS = 8

const BUDGET = 256 * 1024 * 1024

const PIECE_BYTES = 150

/** At most two bytes for each character. */
const bytesOf = ({ body }: Encoded) => 2 * body.length + PIECE_BYTES

interface Variant {
  readonly pieces: Map<ServerId, Encoded>
  bytes: number
}

/**
 * The encoded summaries by sets of fields, in bounded memory; a list of 1,000 servers costs twice as much without.
 * Beyond the bound, the oldest set is dropped.
 */
export class SummaryCache {
  readonly #budget: number
  readonly #variants = new Map<Include, Variant>()

  constructor(budget = BUDGET) {
    this.#budget = budget
  }

  get bytes(): number {
    return [...this.#variants.values()].reduce((sum, { bytes }) => sum + bytes, 0)
  }

  /** Returns the summary of a server, encoded unless cached. With `isKept` it is cached. */
  get(include: Include, id: ServerId, encode: () => string, isKept = true): Encoded {
    const variant = this.#variants.get(include) ?? this.#add(include)
    const known = variant.pieces.get(id)
    if (known !== undefined) return known
    const piece = new Encoded(encode())
    if (!isKept) return piece
    variant.pieces.set(id, piece)
    variant.bytes += bytesOf(piece)
    for (const [oldest] of this.#variants) {
      if (this.bytes <= this.#budget) break
      this.#variants.delete(oldest)
    }
    return piece
  }

  #add(include: Include): Variant {
    const variant: Variant = { pieces: new Map(), bytes: 0 }
    const [oldest] = this.#variants.keys()
    if (this.#variants.size >= MAX_VARIANTS && oldest !== undefined) this.#variants.delete(oldest)
    this.#variants.set(include, variant)
    return variant
  }

  forget(id: ServerId, isOf: (include: Include) => boolean = () => true): void {
    for (const [include, variant] of this.#variants) {
      const piece = isOf(include) ? variant.pieces.get(id) : undefined
      if (piece === undefined) continue
      variant.pieces.delete(id)
      variant.bytes -= bytesOf(piece)
    }
  }

  clear(isOf: (include: Include) => boolean): void {
    for (const include of this.#variants.keys()) if (isOf(include)) this.#variants.delete(include)
  }
}

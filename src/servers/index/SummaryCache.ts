import type { ServerId } from "../../domain/Id.ts"
import type { Encoded, EncodedChunk, EncodedList } from "./Encoded.ts"
import type { Chunk } from "./ServerOrder.ts"
import type { Include } from "./summary.ts"

/** An encoded chunk, and its servers that have changed since. */
export interface KnownChunk {
  readonly encoded: EncodedChunk
  readonly changed: Set<ServerId>
}

/** The encoded summaries with one set of fields, and the list of all. */
export class Variant {
  readonly include: Include
  readonly pieces = new Map<ServerId, Encoded>()
  chunks = new Map<Chunk, KnownChunk>()
  /** The chunks of a list in the making, which are not counted: there is one such list at a time. */
  readonly made = new Map<Chunk, KnownChunk>()
  /** The list of all, until a change. One that does not fit is shared until it is collected as garbage. */
  list: { deref(): EncodedList | undefined } | undefined = undefined
  pieceBytes = 0
  chunkBytes = 0
  /** Whether its list is in the making: it stays until the list is done, whatever others ask for. */
  isPinned = false

  constructor(include: Include) {
    this.include = include
  }

  get bytes(): number {
    return this.pieceBytes + this.chunkBytes
  }

  known(chunk: Chunk): KnownChunk | undefined {
    return this.made.get(chunk) ?? this.chunks.get(chunk)
  }

  clear(): void {
    this.pieces.clear()
    this.chunks.clear()
    this.made.clear()
    this.list = undefined
    this.pieceBytes = 0
    this.chunkBytes = 0
  }

  removePiece(id: ServerId): void {
    const piece = this.pieces.get(id)
    if (piece === undefined) return
    this.pieces.delete(id)
    this.pieceBytes -= bytesOf(piece)
  }
}

/** Sets of fields that are kept encoded: each change is a change of all of them. */
const MAX_VARIANTS = 8

/** Bytes of all that is kept encoded. */
const BUDGET = 256 * 1024 * 1024

/** Memory of a piece beside its text: its objects, and its place in the map. */
const PIECE_BYTES = 150

/** At most two bytes for each character. */
const bytesOf = ({ body }: Encoded) => 2 * body.length + PIECE_BYTES

/**
 * The variants that were used last, in bounded memory. Beyond the bound, the variants that were not used for the longest
 * time are dropped; a single variant keeps the chunks of its list that fit.
 */
export class SummaryCache {
  readonly #budget: number
  readonly #variants = new Map<Include, Variant>()

  /** @param budget bytes */
  constructor(budget = BUDGET) {
    this.#budget = budget
  }

  /** Bytes of what is kept. */
  get bytes(): number {
    let sum = 0
    for (const { bytes } of this.#variants.values()) sum += bytes
    return sum
  }

  /** Returns a variant and marks it as used. */
  of(include: Include): Variant {
    const known = this.#variants.get(include)
    if (known !== undefined && this.#variants.size === 1) return known
    const variant = known ?? new Variant(include)
    this.#variants.delete(include)
    this.#variants.set(include, variant)
    if (this.#variants.size > MAX_VARIANTS) {
      const oldest = [...this.#variants.values()].find((other) => other !== variant && !other.isPinned)
      if (oldest !== undefined) this.#variants.delete(oldest.include)
    }
    return variant
  }

  addPiece(variant: Variant, id: ServerId, piece: Encoded): void {
    variant.removePiece(id)
    variant.pieces.set(id, piece)
    variant.pieceBytes += bytesOf(piece)
    this.#bound(variant)
  }

  /** Keeps the chunks of a list, of all in its order, that fit. Returns whether all do. */
  keepChunks(variant: Variant, chunks: ReadonlyMap<Chunk, KnownChunk>): boolean {
    variant.made.clear()
    variant.chunks = new Map(chunks)
    variant.chunkBytes = 0
    for (const { encoded } of chunks.values()) variant.chunkBytes += encoded.body.length
    this.#bound(variant)
    return variant.chunks.size === chunks.size
  }

  #bound(variant: Variant): void {
    let excess = this.bytes - this.#budget
    if (excess <= 0) return
    for (const other of this.#variants.values()) {
      if (other === variant || other.isPinned || other.bytes === 0) continue
      this.#variants.delete(other.include)
      excess -= other.bytes
      if (excess <= 0) return
    }
    excess -= variant.pieceBytes
    variant.pieces.clear()
    variant.pieceBytes = 0
    for (const [chunk, { encoded }] of [...variant.chunks].toReversed()) {
      if (excess <= 0) return
      variant.chunks.delete(chunk)
      variant.chunkBytes -= encoded.body.length
      excess -= encoded.body.length
    }
  }

  /** Removes all that was encoded. */
  clear(isShown: (include: Include) => boolean): void {
    for (const variant of this.#variants.values()) {
      if (isShown(variant.include)) variant.clear()
    }
  }

  /**
   * Removes what was encoded of some servers.
   *
   * @param chunkOf the chunk that has a server
   */
  forget(
    ids: ReadonlyArray<ServerId> | ReadonlySet<ServerId>,
    chunkOf: (id: ServerId) => Chunk | undefined,
    isShown: (include: Include) => boolean
  ): void {
    for (const variant of this.#variants.values()) {
      if (!isShown(variant.include)) continue
      for (const id of ids) {
        variant.removePiece(id)
        const chunk = chunkOf(id)
        if (chunk !== undefined) variant.known(chunk)?.changed.add(id)
      }
      variant.list = undefined
    }
  }
}

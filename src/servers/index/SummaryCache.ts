import type { ServerId } from "../../domain/Id.ts"
import type { Encoded, EncodedChunk, EncodedList } from "./Encoded.ts"
import type { Chunk } from "./ServerOrder.ts"
import type { Include } from "./summary.ts"

/** The encoded summaries with one set of fields, and the list of all. */
export interface Variant {
  readonly include: Include
  readonly pieces: Map<string, Encoded>
  /** The chunks of the order that are encoded. */
  readonly chunks: WeakMap<Chunk, EncodedChunk>
  list: EncodedList | undefined
}

/** Sets of fields that are kept encoded, so that a caller that asks for every combination fills no memory. */
const MAX_VARIANTS = 8

/** The variants that were used last. */
export class SummaryCache {
  readonly #variants = new Map<Include, Variant>()

  /** Returns a variant and marks it as used. */
  of(include: Include): Variant {
    const known = this.#variants.get(include)
    if (known !== undefined && this.#variants.size === 1) return known
    const variant = known ?? { include, pieces: new Map(), chunks: new WeakMap(), list: undefined }
    this.#variants.delete(include)
    this.#variants.set(include, variant)
    const oldest = this.#variants.keys().next()
    if (this.#variants.size > MAX_VARIANTS && oldest.done !== true) this.#variants.delete(oldest.value)
    return variant
  }

  /**
   * Removes what was encoded of some servers.
   *
   * @param chunkOf the chunk that has a server
   */
  forget(
    ids: ReadonlyArray<ServerId> | ReadonlySet<ServerId>,
    chunkOf: (id: ServerId) => Chunk | undefined,
    isShown: (include: Include) => boolean = () => true
  ): void {
    for (const variant of this.#variants.values()) {
      if (!isShown(variant.include)) continue
      for (const id of ids) {
        variant.pieces.delete(id)
        const chunk = chunkOf(id)
        if (chunk !== undefined) variant.chunks.delete(chunk)
      }
      variant.list = undefined
    }
  }
}

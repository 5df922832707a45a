import { etagOf } from "../../api/conditional.ts"
import type { ServerId } from "../../domain/Id.ts"
import type { Include } from "./summary.ts"

/** A response body with its weak `ETag`, which is made on first use. */
export class Encoded {
  readonly body: Uint8Array
  #etag: string | undefined

  constructor(body: Uint8Array) {
    this.body = body
  }

  get etag(): string {
    this.#etag ??= etagOf(this.body)
    return this.#etag
  }
}

/** The encoded summaries with one set of fields, and the list of all. */
export interface Variant {
  readonly include: Include
  readonly pieces: Map<string, Encoded>
  list: Encoded | undefined
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
    const variant = known ?? { include, pieces: new Map(), list: undefined }
    this.#variants.delete(include)
    this.#variants.set(include, variant)
    const oldest = this.#variants.keys().next()
    if (this.#variants.size > MAX_VARIANTS && oldest.done !== true) this.#variants.delete(oldest.value)
    return variant
  }

  /** Removes what was encoded of some servers. */
  forget(
    ids: ReadonlyArray<ServerId> | ReadonlySet<ServerId>,
    isShown: (include: Include) => boolean = () => true
  ): void {
    for (const variant of this.#variants.values()) {
      if (!isShown(variant.include)) continue
      for (const id of ids) variant.pieces.delete(id)
      variant.list = undefined
    }
  }
}

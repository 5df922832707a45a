import type { NodeId } from "../domain/Id.ts"
import type { Labels } from "../domain/Labels.ts"
import type { Overrides } from "../domain/Overrides.ts"

/** A request to create a server; `body_hash` is the SHA-256 of the request's body in hex. */
export interface CreateRequest {
  readonly blueprint_id: string
  readonly node_id?: NodeId
  readonly overrides: Overrides
  /** Whether the server starts once it is installed; absent: the blueprint decides. */
  readonly start?: boolean
  /** The default of a blueprint without `start`; absent: false. */
  readonly startUnlessSaid?: boolean
  readonly name?: string
  readonly labels?: Labels
  /** Seconds. */
  readonly expires_in?: number
  readonly idempotency?: { readonly key: string; readonly body_hash: string }
}

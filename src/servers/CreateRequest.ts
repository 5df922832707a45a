import type { NodeId } from "../domain/Id.ts"
import type { Labels } from "../domain/Labels.ts"
import type { Overrides } from "../domain/Overrides.ts"

/** A request to create a server; `body_hash` is the SHA-256 of the request's body in hex. */
export interface CreateRequest {
  readonly blueprint_id: string
  readonly node_id?: NodeId
  readonly overrides: Overrides
  readonly start: boolean
  readonly name?: string
  readonly labels?: Labels
  /** Seconds. */
  readonly expires_in?: number
  readonly idempotency?: { readonly key: string; readonly body_hash: string }
}

import { type Effect, Metric } from "effect"
import { authFailures } from "../domain/metrics.ts"

/**
 * The reasons of a failed authentication. `limited`: the address is over its limit, and the key was not compared with a
 * short outside key.
 */
export type AuthFailure =
  | "no_header"
  | "malformed_header"
  | "malformed_key"
  | "unknown_key"
  | "revoked_key"
  | "expired_key"
  | "ticket"
  | "limited"

/** Counts a failed authentication for `/metrics`. */
export const countAuthFailure = (reason: AuthFailure): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(authFailures, { reason }), 1)

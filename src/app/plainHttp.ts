import { Effect } from "effect"
import { StartError } from "../shared/config/StartError.ts"

/**
 * Warns of plain HTTP beyond this host: `what` is the fact, `remedy` an imperative.
 * @error StartError TLS is required
 */
export const plainHttp = (requireTls: boolean, what: string, remedy: string) =>
  requireTls
    ? Effect.fail(new StartError({ message: `${what}, and MUSTER_REQUIRE_TLS is true: ${remedy}` }))
    : Effect.logWarning(`${what}, so that keys and data cross the network unencrypted: ${remedy}`)

import { Context, Layer } from "effect"
import { type KeyedLock, makeKeyedLock } from "../../work/KeyedLock.ts"

/**
 * Whoever makes a node have or lose a server holds the server's lock, so that a creation that is under way never
 * reaches the node after the removal. Reports do not take it.
 */
export class ServerLocks extends Context.Service<ServerLocks, KeyedLock>()("muster/servers/ServerLocks") {
  static readonly layer = Layer.sync(ServerLocks, makeKeyedLock)
}

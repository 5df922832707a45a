import { Context, Layer } from "effect"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { type KeyedLock, makeKeyedLock } from "../../../shared/work/KeyedLock.ts"

/** Locks by server id, so that no installation reaches a node after the removal. Reports do not take the lock. */
export class ServerLocks extends Context.Service<ServerLocks, KeyedLock<ServerId>>()(
  "muster/servers/ServerLocks"
) {
  static readonly layer = Layer.sync(ServerLocks, () => makeKeyedLock())
}

import type { ServerId } from "../../domain/Id.ts"
import type { RestrictedServer } from "../../domain/KeyLimits.ts"
import type { Server } from "../../domain/Server.ts"
import type { Place } from "./ServerOrder.ts"

const MOST = 10_000

/** A server as it was when it was deleted. */
export interface DeletedServer extends Place, RestrictedServer {
  readonly name?: string | undefined
  readonly summary: Server
}

/**
 * The servers that were deleted last, at most 10,000: their places for a caller that pages on from one, their facts for
 * events. Each is kept as one text, which takes less memory than its objects.
 */
export class DeletedServers {
  readonly #texts = new Map<ServerId, string>()

  add(server: DeletedServer): void {
    this.#texts.set(server.id, JSON.stringify(server))
    const oldest = this.#texts.keys().next()
    if (this.#texts.size > MOST && oldest.done !== true) this.#texts.delete(oldest.value)
  }

  /** Forgets a server, because it is here again. */
  forget(id: ServerId): void {
    this.#texts.delete(id)
  }

  get(id: ServerId): DeletedServer | undefined {
    const text = this.#texts.get(id)
    return text === undefined ? undefined : JSON.parse(text)
  }
}

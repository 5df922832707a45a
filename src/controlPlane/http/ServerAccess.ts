import { Context, type Effect } from "effect"
import type { NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"

/** The servers that the key of the current caller may read (spec 6.2); the servers implement it. */
export class ServerAccess extends Context.Service<
  ServerAccess,
  {
    /** Whether the caller may read a server; of a key that is limited to servers, false also for an unknown one. */
    mayRead(id: ServerId): Effect.Effect<boolean, Unavailable>
    /** Returns the 404 of an id or a name with the end of the server, if it was deleted and the caller could read it. */
    explained(text: string, error: NotFound): Effect.Effect<NotFound>
    /** Waits until the caller may no longer read a server; forever, if its key is not limited to servers. */
    ends(id: ServerId): Effect.Effect<void>
    /** Returns the number of servers of a node that the caller may read, if its key is limited to servers. */
    countOn(node_id: NodeId): Effect.Effect<number | undefined>
    /** Returns readable unsaved servers with a failed installation, which no drain removes or migrates. */
    stuckOn(node_id: NodeId): Effect.Effect<ReadonlyArray<ServerId>>
  }
>()("muster/api/ServerAccess") {}

import { Context } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { RestrictedServer } from "../../contract/domain/Key.ts"
import type { Server } from "../../contract/domain/Server.ts"

/** The summaries of servers (spec 3.1), of recently deleted ones too. The read model of servers implements it. */
export class ServerSummaries extends Context.Service<
  ServerSummaries,
  {
    find(server_id: ServerId): Server | undefined
    facts(server_id: ServerId): RestrictedServer | undefined
    /** Returns nothing if the server has no name or is unknown. */
    nameOf(server_id: ServerId): string | undefined
  }
>()("muster/events/ServerSummaries") {}

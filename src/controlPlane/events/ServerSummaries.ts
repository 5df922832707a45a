import { Context } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { RestrictedServer } from "../../contract/domain/Key.ts"
import type { Server } from "../../contract/domain/Server.ts"

/** The summaries of servers (spec 3.1) for events; the read model of the servers implements it. */
export class ServerSummaries extends Context.Service<
  ServerSummaries,
  {
    /** Returns the summary of a server, or the last one of a server that was recently here. */
    find(server_id: ServerId): Server | undefined
    /** Returns the facts of a server for filters, or the last ones of a server that was recently here. */
    facts(server_id: ServerId): RestrictedServer | undefined
    /** Returns the name of a server, or the last one of a server that was recently here; undefined: none, or not known. */
    nameOf(server_id: ServerId): string | undefined
  }
>()("muster/events/ServerSummaries") {}

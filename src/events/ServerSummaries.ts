import { Context } from "effect"
import type { ServerId } from "../domain/Id.ts"
import type { Labels } from "../domain/Labels.ts"
import type { Server } from "../domain/Server.ts"

/** The summaries of servers (contract 2.3) for events; the read model of the servers implements it. */
export class ServerSummaries extends Context.Service<
  ServerSummaries,
  {
    /** Returns the summary of a server, or the last one of a server that was recently here. */
    find(server_id: ServerId): Server | undefined
    /** Returns the labels of a server, or the last ones of a server that was recently here. */
    labels(server_id: ServerId): Labels | undefined
  }
>()("muster/events/ServerSummaries") {}

/** Why a server cannot be changed now: 409 with what to do (spec 3). */

import { Conflict } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import type { OperationRecord } from "../../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerStatus } from "../../../contract/domain/ServerStatus.ts"

const hints: Partial<Record<ServerStatus, string>> = {
  installing: "Wait for the status offline; GET /api/servers/:server/install has the progress.",
  offline: "Start it first.",
  starting: "Wait for the status running, or stop it.",
  stopping: "Wait for the status offline, or kill it.",
  paused: "Unpause it first."
}

export const wrongStatus = (record: ServerRecord): Conflict =>
  new Conflict({
    detail: `server is ${record.status}: ${record.id}`,
    ...(hints[record.status] === undefined ? {} : { hint: hints[record.status] })
  })

export const moving = (id: ServerId): Conflict =>
  new Conflict({
    detail: `server is migrating to another node: ${id}`,
    hint: "Wait until the server has arrived; GET /api/nodes/:node of its old node has the progress."
  })

/** 409: an operation has the server for itself (spec 12.4). */
export class ServerBusy extends Conflict {}

export const busy = ({ id, kind, server_id }: OperationRecord): ServerBusy =>
  new ServerBusy({
    detail: `operation ${id} (${kind}) works on the server: ${server_id}`,
    hint: "Wait until it has ended, or cancel the operation."
  })

export const beingDeleted = (id: ServerId): Conflict =>
  new Conflict({
    detail: `server is being deleted: ${id}`,
    hint: "Create another server: the deletion cannot be cancelled."
  })

export const notOffline = (record: ServerRecord): Conflict =>
  record.status === "installing"
    ? wrongStatus(record)
    : new Conflict({
        detail: `server is ${record.status}: ${record.id}`,
        hint: "Stop it first: POST /api/servers/:server/power."
      })

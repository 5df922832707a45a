/** The refusals of a node, for callers. Pure. */

import type { NodeId } from "../../contract/domain/Id.ts"
import { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import type { ConfigPatchFailed } from "../configPatch/ConfigPatcher.ts"
import type { IoError } from "../disk/fsio.ts"
import { fromDataFolder, isPermanent, remedyOf } from "../disk/remedy.ts"
import type { LaunchFailed } from "../runtime/Runtime.ts"

export interface NodePlace {
  readonly node_id: NodeId
  readonly dataDir: string
}

export const refuse = (status: DaemonRefused["status"], detail: string, hint: string) =>
  new DaemonRefused({ status, detail, hint })

const sentence = (clause: string) => `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`

export const refusals = ({ dataDir, node_id }: NodePlace) => {
  const refused = (status: 409 | 422 | 500, detail: string, hint: string) =>
    new DaemonRefused({ status, detail: fromDataFolder(detail, dataDir), hint })

  const ofNode = (
    error: { readonly message: string; readonly code?: string; readonly next?: string },
    again = "start it again"
  ) => {
    const remedy = remedyOf(error) ?? "read the log of the node, correct the cause"
    return refused(500, error.message, sentence(`on node ${node_id}: ${remedy}, then ${again}`))
  }

  const ofSoftware = (reason: string) =>
    refused(
      422,
      reason,
      "Correct the software or blueprint, reload, then upgrade the server: POST /api/servers/:server/upgrade."
    )

  return {
    refused,
    ofSoftware,
    /** For changes other than a start. */
    ofDisk: (error: IoError) => ofNode(error, "try again"),
    ofNode: (error: IoError | LaunchFailed) =>
      isPermanent(error) ? ofSoftware(error.message) : ofNode(error),
    ofConfig: (error: ConfigPatchFailed) =>
      error.code === undefined
        ? refused(
            422,
            error.message,
            `Correct the file on node ${node_id}, or reset the server, which deletes everything that it has written, its world too. Correct a wrong patch in the blueprint, reload, then upgrade the server.`
          )
        : ofNode(error)
  }
}

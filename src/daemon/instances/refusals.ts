/** Why a node cannot do what was asked of a server, as those read it who asked for it. Pure. */
import { DaemonRefused } from "../../api/Daemon.ts"
import type { ConfigPatchFailed } from "../configPatch/ConfigPatcher.ts"
import type { IoError } from "../disk/fsio.ts"
import { fromDataFolder, isForGood, remedyOf } from "../disk/remedy.ts"
import type { LaunchFailed } from "../runtime/Runtime.ts"

/** Whose servers they are. */
export interface Place {
  readonly node_id: string
  readonly data_dir: string
}

const sentence = (clause: string) => `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`

export const refusals = ({ data_dir, node_id }: Place) => {
  const refused = (status: 409 | 422 | 500, detail: string, hint: string) =>
    new DaemonRefused({ status, detail: fromDataFolder(detail, data_dir), hint })

  /** What is wrong with the node, not with what was asked for. */
  const ofNode = (
    error: { readonly message: string; readonly code?: string; readonly next?: string },
    again = "start it again"
  ) => {
    const remedy = remedyOf(error) ?? "look at its log, correct the cause"
    return refused(500, error.message, sentence(`on node ${node_id}: ${remedy}, then ${again}`))
  }

  /** What a server is made by stays as it is for as long as the server does. */
  const ofSoftware = (reason: string) =>
    refused(422, reason, "Correct the software or blueprint, then create the server again.")

  return {
    refused,
    ofSoftware,
    /** Of what is no start. */
    ofDisk: (error: IoError) => ofNode(error, "ask again"),
    ofNode: (error: IoError | LaunchFailed) => (isForGood(error) ? ofSoftware(error.message) : ofNode(error)),
    ofConfig: (error: ConfigPatchFailed) =>
      error.code === undefined
        ? refused(
            422,
            error.message,
            `Correct the file on node ${node_id}, or reset the server; a patch that is wrong is corrected in the blueprint, and holds for new servers.`
          )
        : ofNode(error)
  }
}

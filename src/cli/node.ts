import { Effect } from "effect"
import { LoggingLayer } from "../app/logging.ts"
import { runNode } from "../app/node.ts"
import { TelemetryLayer } from "../app/telemetry.ts"
import { loadNodeSettings, nodeSettings } from "../shared/config/node.ts"
import { StartError } from "../shared/config/StartError.ts"
import { command } from "./shared/command.ts"

const cannotListen = ({ cause }: { readonly cause: unknown }) =>
  Effect.fail(
    new StartError({
      message: `cannot listen (${cause instanceof Error ? cause.message : cause}): set MUSTER_NODE_PORT or MUSTER_NODE_HOST`
    })
  )

/** `muster node`: runs the daemon of a host (spec 9). */
export const node = command("node", {
  description: "Run the daemon of a node; docs/nodes.md has an example.",
  settings: nodeSettings,
  short: "Run the daemon of a node",
  examples: {
    "MUSTER_NODE_KEY_FILE=/etc/muster/node.key muster node":
      "Beside the control plane, with a key of scope Node",
    "MUSTER_CONTROL_URL=https://muster.example.com MUSTER_NODE_KEY_FILE=/etc/muster/node.key MUSTER_NODE_URL=https://node-2.example.com:5585 muster node":
      "On another machine"
  },
  input: {},
  *run() {
    const settings = yield* loadNodeSettings
    yield* runNode(settings).pipe(
      Effect.catchTag("ServeError", cannotListen),
      Effect.provide(TelemetryLayer("muster-node", settings)),
      Effect.provide(LoggingLayer(settings))
    )
  }
})

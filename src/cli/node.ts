import { Effect } from "effect"
import { Command } from "effect/cli"
import { LoggingLayer } from "../app/logging.ts"
import { runNode } from "../app/node.ts"
import { TelemetryLayer } from "../app/telemetry.ts"
import { withSettings } from "../shared/config/help.ts"
import { loadNodeSettings, nodeSettings } from "../shared/config/node.ts"
import { StartError } from "../shared/config/StartError.ts"
import { documented } from "./shared/documented.ts"

const cannotListen = ({ cause }: { readonly cause: unknown }) =>
  Effect.fail(
    new StartError({
      message: `cannot listen (${cause instanceof Error ? cause.message : cause}): set MUSTER_NODE_PORT or MUSTER_NODE_HOST`
    })
  )

/** `muster node`: runs the daemon of a host (spec 9). */
export const node = Command.make(
  "node",
  {},
  Effect.fn(function* () {
    const settings = yield* loadNodeSettings
    yield* runNode(settings).pipe(
      Effect.catchTag("ServeError", cannotListen),
      Effect.provide(TelemetryLayer("muster-node", settings)),
      Effect.provide(LoggingLayer(settings))
    )
  })
).pipe(
  documented(
    withSettings("Run the daemon of a node; docs/nodes.md has an example.", nodeSettings),
    {
      "MUSTER_NODE_KEY_FILE=/etc/muster/node.key muster node":
        "Beside the control plane, with a key of scope Node",
      "MUSTER_CONTROL_URL=https://muster.example.com MUSTER_NODE_KEY_FILE=/etc/muster/node.key MUSTER_NODE_URL=https://node-2.example.com:5585 muster node":
        "On another machine"
    },
    "Run the daemon of a node"
  )
)

import { Effect } from "effect"
import { Command } from "effect/cli"
import { LoggingLayer } from "../app/logging.ts"
import { runNode } from "../app/node.ts"
import { loadNodeSettings } from "../config/node.ts"
import { StartError } from "../config/StartError.ts"

const cannotListen = ({ cause }: { readonly cause: unknown }) =>
  Effect.fail(
    new StartError({
      message: `cannot listen (${cause instanceof Error ? cause.message : cause}): set MUSTER_NODE_PORT or MUSTER_NODE_HOST`
    })
  )

/** `muster node`: runs the daemon of a host (node-protocol). */
export const node = Command.make(
  "node",
  {},
  Effect.fn(function* () {
    const settings = yield* loadNodeSettings
    yield* runNode(settings).pipe(
      Effect.catchTag("ServeError", cannotListen),
      Effect.provide(LoggingLayer(settings))
    )
  })
).pipe(
  Command.withDescription(
    'Run the daemon of a node. Its settings are environment variables: MUSTER_CONTROL_URL, MUSTER_NODE_KEY, MUSTER_NODE_URL and those that the README lists under "Settings"; "Nodes" there has an example'
  )
)

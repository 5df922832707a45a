import { join, resolve } from "node:path"
import { Effect, Layer } from "effect"
import type { ServiceSettings } from "../config.ts"
import { NodeDaemon } from "../daemon/NodeDaemon.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { version } from "../version.ts"
import { nodeIdentity } from "./nodeIdentity.ts"

/** A daemon in this process, with the process runtime: needs `ControlPlane` and `DaemonClient`. */
export const EmbeddedNode = (settings: ServiceSettings, dataDir: string) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const client = yield* DaemonClient
      return NodeDaemon.layer({
        node_id: yield* nodeIdentity(dataDir),
        name: settings.nodeName,
        location: settings.nodeLocation,
        url: settings.nodeUrl === "" ? `http://${settings.host}:${settings.port}` : settings.nodeUrl,
        version,
        data_dir: join(dataDir, "node"),
        allocations: settings.embeddedAllocations,
        allowed_mounts: settings.allowedMounts.map((folder) => resolve(folder)),
        environment: process.env,
        pass_env: settings.passEnv,
        on_shutdown: settings.embeddedOnShutdown,
        attach: client.attach
      })
    })
  )

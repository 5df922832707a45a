import { homedir } from "node:os"
import { join, resolve } from "node:path"
import type { ServiceSettings } from "../config/service.ts"
import type { NodeDaemonOptions } from "../daemon/NodeDaemon.ts"
import type { NodeAllocation } from "../domain/Allocation.ts"

type DockerSettings = Pick<
  ServiceSettings,
  "dockerConfig" | "dockerPull" | "dockerSocket" | "embeddedRuntime" | "forceOutgoingIp"
>

/** The config file of Docker's command line. */
export const dockerConfigPath = (set: string): string =>
  set === "" ? join(homedir(), ".docker", "config.json") : resolve(set)

/** What the settings of a node, the embedded one or another, say of Docker. */
export const dockerOptions = (
  runtime: DockerSettings["embeddedRuntime"],
  settings: Omit<DockerSettings, "embeddedRuntime">
): Pick<NodeDaemonOptions, "docker"> =>
  runtime === "process"
    ? {}
    : {
        docker: {
          socket: resolve(settings.dockerSocket),
          pull: settings.dockerPull,
          config: dockerConfigPath(settings.dockerConfig),
          optional: runtime === "auto"
        }
      }

/** The addresses of a node, with what holds for all of them. */
export const nodeAllocations = (
  given: ReadonlyArray<NodeAllocation>,
  settings: Pick<DockerSettings, "forceOutgoingIp">
): ReadonlyArray<NodeAllocation> =>
  given.map((allocation) => ({ ...allocation, force_outgoing_ip: settings.forceOutgoingIp }))

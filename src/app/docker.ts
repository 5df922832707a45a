import { homedir } from "node:os"
import { join, resolve } from "node:path"
import type { ServiceSettings } from "../config/service.ts"
import type { NodeDaemonOptions } from "../daemon/NodeDaemon.ts"
import type { NodeAllocation } from "../domain/Allocation.ts"

type DockerSettings = Pick<
  ServiceSettings,
  "dockerConfig" | "dockerPull" | "dockerSocket" | "embeddedRuntime" | "forceOutgoingIp"
>

/** Returns the path of the config file of Docker's command line. */
export const dockerConfigPath = (set: string): string =>
  set === "" ? join(homedir(), ".docker", "config.json") : resolve(set)

/** Returns the options of Docker from the settings of a node, embedded or not. */
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

/** Returns the addresses of a node with the settings that hold for all of them. */
export const nodeAllocations = (
  given: ReadonlyArray<NodeAllocation>,
  settings: Pick<DockerSettings, "forceOutgoingIp">
): ReadonlyArray<NodeAllocation> =>
  given.map((allocation) => ({ ...allocation, force_outgoing_ip: settings.forceOutgoingIp }))

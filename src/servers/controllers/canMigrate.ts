/** Whether a server can be migrated, by its record alone: pure rules. */
import type { ServerRecord } from "../../domain/Server.ts"

const names = (list: ReadonlyArray<string>) => [...new Set(list)].join(", ")

/** Returns the reason that a saved server cannot be migrated until an operator changes something. */
export const migrationBlocker = ({ definition, install }: ServerRecord): string | undefined => {
  const volumes = definition.volumes.filter((volume) => volume.mode === "rw").map((volume) => volume.name)
  if (volumes.length > 0) return `it has volumes that are written by others too (rw): ${names(volumes)}`
  const mounts = definition.mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.source)
  if (mounts.length > 0) return `it has mounts that are written by others too (rw): ${names(mounts)}`
  if (install.phase === "failed") return "its installation has failed: reinstall or delete it"
  return undefined
}

/** Returns the reason that a server cannot be migrated at the moment. */
export const migrationDelay = ({ install, status }: ServerRecord): string | undefined => {
  if (status === "unknown") return "its node is not connected"
  if (status === "installing" || install.phase !== "ready") return "it is being installed"
  return status === "stopping" ? "it is stopping" : undefined
}

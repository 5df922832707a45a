import { readFileSync } from "node:fs"
import os from "node:os"
import { Effect } from "effect"
import type { Capacity, HostInfo } from "../../contract/domain/Node.ts"
import type { Heartbeat } from "../../contract/domain/NodeMessages.ts"
import { diskOf, type IoError } from "../disk/fsio.ts"

/** The names of architectures in Go, if they differ from Node's. */
const goNames: Readonly<Record<string, string>> = {
  x64: "amd64",
  ia32: "386",
  ppc64: "ppc64le",
  mipsel: "mipsle"
}

const prettyName = (): string | undefined => {
  try {
    const line = /^PRETTY_NAME=(.*)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1]
    return line?.trim().replace(/^(["'])(.*)\1$/, "$2")
  } catch {
    return undefined // not Linux, or without a name
  }
}

/** Returns the host information (spec 1.1, `system`). `node`: the fields that only nodes have. */
export const hostInfo = (
  node: Pick<HostInfo, "instance_files" | "isolation" | "lacks_uids" | "not_enforced"> = {}
): HostInfo => ({
  architecture: goNames[process.arch] ?? process.arch,
  cpu_threads: os.availableParallelism(),
  memory_bytes: os.totalmem(),
  kernel_version: os.release(),
  os: prettyName() ?? os.type(),
  os_type: process.platform,
  ...node
})

/** Returns the host's capacity; `overrides` win. @error IoError the disk of the data folder cannot be read */
export const capacityOf = (dataDir: string, overrides: Partial<Capacity>): Effect.Effect<Capacity, IoError> =>
  Effect.map(diskOf(dataDir), ({ total }) => ({
    memory_bytes: os.totalmem(),
    cpu_threads: os.availableParallelism(),
    disk_bytes: total,
    ...overrides
  }))

export const loadOf = (dataDir: string): Effect.Effect<Omit<Heartbeat, "boot_id">, IoError> =>
  Effect.map(diskOf(dataDir), ({ used }) => ({
    load: os.loadavg()[0] ?? 0,
    memory_used_bytes: os.totalmem() - os.freemem(),
    disk_used_bytes: used
  }))

/** The resources of a running service: memory, open files, processes, mounts, cgroups and claims (Linux). */
import { existsSync, readdirSync, readlinkSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { CLAIMS } from "../../src/daemon/runtime/uidClaims.ts"
import { eventually } from "./eventually.ts"
import { mountsBelow } from "./mounts.ts"
import { read } from "./processes.ts"
import type { Service } from "./Service.ts"

/** Makes a service print its memory in use at SIGUSR2. */
export const probed = {
  NODE_OPTIONS: `--max-semi-space-size=8 --import=${join(import.meta.dirname, "memoryProbe.mjs")}`
}

const namesIn = (folder: string): ReadonlyArray<string> => (existsSync(folder) ? readdirSync(folder) : [])

/** Inodes of established TCP connections to a port: clients keep them for their next request. */
const connectionsTo = (port: number): ReadonlySet<string> => {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`
  const rows = ["/proc/net/tcp", "/proc/net/tcp6"].flatMap((path) => read(path).split("\n").slice(1))
  const established = rows
    .map((row) => row.trim().split(/\s+/))
    .filter((fields) => fields[1]?.endsWith(local) && fields[3] === "01")
  return new Set(established.map((fields) => `socket:[${fields[9]}]`))
}

/** Kinds of open files, with their number. */
const openFiles = (pid: number, port: number): Readonly<Record<string, number>> => {
  const kinds: Record<string, number> = {}
  const connections = connectionsTo(port)
  for (const name of namesIn(`/proc/${pid}/fd`)) {
    let target: string
    try {
      target = readlinkSync(`/proc/${pid}/fd/${name}`)
    } catch {
      continue // the folder itself, which was open while it was read
    }
    if (connections.has(target)) continue
    const kind = target.replace(/:\[\d+\]$/, "")
    kinds[kind] = (kinds[kind] ?? 0) + 1
  }
  return kinds
}

const childrenOf = (pid: number): ReadonlyArray<string> =>
  namesIn("/proc")
    .filter((name) => new RegExp(`^\\d+ \\(.*\\) \\S ${pid} `).test(read(`/proc/${name}/stat`)))
    .map((name) => read(`/proc/${name}/cmdline`).replaceAll("\0", " ").trim())
    .toSorted()

/** Everything but memory and the uids of software; equal at two moments of a service without servers and clients. */
export const holdings = (service: Service, servers: ReadonlyArray<string>) => {
  const pid = service.process.pid ?? 0
  const ids = new Set(servers)
  return {
    files: openFiles(pid, Number(new URL(service.url).port)),
    children: childrenOf(pid),
    mounts: mountsBelow(service.dataDir).map(({ path }) => path),
    cgroups: ["/sys/fs/cgroup/muster", "/sys/fs/cgroup/unified/muster"]
      .flatMap(namesIn)
      .filter((name) => ids.has(name)),
    folders: namesIn(join(service.dataDir, "node", "instances")),
    claims: namesIn(CLAIMS)
      .map((uid) => read(join(CLAIMS, uid)))
      .filter((claim) => claim.includes(service.dataDir) && !claim.includes('"software:')).length
  }
}

export interface Memory {
  /** Bytes of live objects and buffers, without compiled code, after a garbage collection. */
  readonly used: number
  /** Resident bytes of the process. */
  readonly resident: number
}

/** Reads the memory of a service that was started with {@link probed}. */
export const memoryOf = (service: Service) =>
  Effect.suspend(() => {
    const printed = () => [...service.output().matchAll(/^memory (\d+) (\d+) (\d+)$/gm)]
    const before = printed().length
    service.process.kill("SIGUSR2")
    return Effect.map(
      eventually(printed, (lines) => lines.length > before),
      (lines): Memory => ({ used: Number(lines.at(-1)?.[2]), resident: Number(lines.at(-1)?.[3]) })
    )
  })

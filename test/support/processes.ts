/** The processes of servers, found by the marker in their environment (Linux). */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { allPids, liveUids, type Proc, readProc } from "../../src/daemon/host/procfs.ts"

export interface ServerProcess {
  readonly pid: number
  /** The id of its server, or of its installation. */
  readonly server: string
  readonly command: string
}

/** Returns the text of a file of a process; empty: there is none. */
export const read = (path: string): string => {
  try {
    return readFileSync(path, "utf8")
  } catch {
    return "" // it has ended or is a kernel thread
  }
}

/** Returns all processes except zombies. */
export const readProcs = (): ReadonlyArray<Proc> => allPids().flatMap((pid) => readProc(pid) ?? [])

/** Whether a uid has a live process. */
export const hasLive = (uid: number): boolean => allPids().some((pid) => liveUids(pid).has(uid))

/** Live processes of the embedded node of the service with this data folder. */
export const serverProcesses = (dataDir: string): ReadonlyArray<ServerProcess> => {
  const suffix = `@${join(dataDir, "node")}`
  const found: Array<ServerProcess> = []
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue
    const environment = read(`/proc/${name}/environ`).split("\0")
    const node = environment.find((entry) => entry.startsWith("MUSTER_NODE="))
    if (node?.endsWith(suffix) !== true) continue
    const state = /\) (\S)/.exec(read(`/proc/${name}/stat`))?.[1]
    if (state === undefined || state === "Z" || state === "X") continue
    const server = environment.find((entry) => entry.startsWith("MUSTER_SERVER="))?.slice(14) ?? ""
    const command = read(`/proc/${name}/cmdline`).replaceAll("\0", " ").trim()
    // The isolating parent process runs as long as its server.
    const isolates = command.endsWith("/bin/sh /proc/self/fd/3") && !command.includes("muster-shim")
    if (!isolates) found.push({ pid: Number(name), server, command })
  }
  return found
}

/** The process of the server, not its shim. */
export const mainProcess = (dataDir: string, id: string) =>
  Effect.sync(() =>
    serverProcesses(dataDir).find(({ server, command }) => server === id && !command.includes("muster-shim"))
  )

/** The shim, which waits for the server and records its exit. */
export const shimProcess = (dataDir: string, id: string) =>
  Effect.sync(() =>
    serverProcesses(dataDir).find(({ server, command }) => server === id && command.includes("muster-shim"))
  )

/** Resident memory of a process, in bytes. */
export const residentBytes = (pid: number): number =>
  Number(/^VmRSS:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) * 1024

/** Kills the processes that a failed test has left. */
export const endLeftovers = (dataDir: string) =>
  Effect.sync(() => {
    for (const { pid } of serverProcesses(dataDir)) {
      try {
        process.kill(pid, "SIGKILL")
      } catch {
        // it has ended meanwhile
      }
    }
  })

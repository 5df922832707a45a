/** Processes in Linux /proc, read synchronously and in slices, because servers decide how many there are. */
import { closeSync, opendirSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from "node:fs"
import type { Effect } from "effect"
import { inSlices } from "../../shared/work/slices.ts"

export interface Proc {
  readonly pid: number
  readonly ppid: number
  readonly pgrp: number
  readonly session: number
  /** `R`, `S`, `D`, `T`, `Z`... */
  readonly state: string
  /** User and system time in clock ticks, including that of its ended children. */
  readonly ticks: number
  /** Clock ticks between the boot and its start; unique in combination with the pid. */
  readonly start: string
  readonly rssBytes: number
}

/** The marker in the environment of a process: what it was started for. */
export interface Marker {
  readonly node: string
  readonly server: string
}

/** Clock ticks per second: fixed at 100 for user space on Linux. */
export const TICKS_PER_SECOND = 100
const PAGE = 4096

/** Returns a value, unless the process has ended or closed the file, or access is denied. */
const ifThere = <A>(read: () => A): A | undefined => {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** Reads a file as UTF-8. With another encoding, Node.js makes a buffer of 64 KiB for a file without a size. */
const readOrUndefined = (path: string) => ifThere(() => readFileSync(path, "utf8"))

/** Parses /proc/<pid>/stat; the command name may contain blanks and brackets. */
export const parseStat = (text: string): Proc | undefined => {
  const open = text.indexOf("(")
  const close = text.lastIndexOf(")")
  if (open < 0 || close < 0) return undefined
  const rest = text.slice(close + 2).split(" ")
  const number = (field: number) => Number(rest[field - 3] ?? 0)
  return {
    pid: Number(text.slice(0, open)),
    state: rest[0] ?? "?",
    ppid: number(4),
    pgrp: number(5),
    session: number(6),
    ticks: number(14) + number(15) + number(16) + number(17),
    start: rest[22 - 3] ?? "0",
    rssBytes: number(24) * PAGE
  }
}

/** Returns a process, unless it has ended or is a zombie. */
export const readProc = (pid: number): Proc | undefined => {
  const text = readOrUndefined(`/proc/${pid}/stat`)
  const proc = text === undefined ? undefined : parseStat(text)
  return proc === undefined || proc.state === "Z" || proc.state === "X" ? undefined : proc
}

export const allPids = (): ReadonlyArray<number> =>
  readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []))

/** Returns the id of the current boot. Pids and start times of another boot are invalid. */
export const bootId = (): string => readOrUndefined("/proc/sys/kernel/random/boot_id")?.trim() ?? ""

const variable = (environment: string, name: string): string | undefined => {
  const start = environment.startsWith(`${name}=`) ? 0 : environment.indexOf(`\0${name}=`) + 1
  if (start === 0 && !environment.startsWith(`${name}=`)) return undefined
  const end = environment.indexOf("\0", start)
  return environment.slice(start + name.length + 1, end < 0 ? undefined : end)
}

/** Returns the marker of a process, if it has one and access is allowed. */
export const readMarker = (pid: number): Marker | undefined => {
  const environment = readOrUndefined(`/proc/${pid}/environ`)
  if (environment === undefined) return undefined
  const node = variable(environment, "MUSTER_NODE")
  const server = variable(environment, "MUSTER_SERVER")
  return node === undefined || server === undefined ? undefined : { node, server }
}

/** Returns the effective uid of a process, if it lives. The owner of `/proc/<pid>` may differ. */
export const readUid = (pid: number): number | undefined => {
  const uid = /^Uid:\t\d+\t(\d+)/m.exec(readOrUndefined(`/proc/${pid}/status`) ?? "")?.[1]
  return uid === undefined ? undefined : Number(uid)
}

export const bytesWritten = (pid: number): number => {
  const text = readOrUndefined(`/proc/${pid}/io`) ?? ""
  const [, written = 0] = /^write_bytes: (\d+)$/m.exec(text) ?? []
  const [, cancelled = 0] = /^cancelled_write_bytes: (\d+)$/m.exec(text) ?? []
  return Math.max(0, Number(written) - Number(cancelled))
}

/** Reads a container's pids from the cgroup of its `main` process, named by `id`; none if the engine is remote. */
export const pidsOfContainer = (main: number, id: string): ReadonlyArray<number> => {
  const groups = (readOrUndefined(`/proc/${main}/cgroup`) ?? "").split("\n")
  const group = groups
    .map((line) => /^\d+:(pids)?:(\/.+)$/.exec(line))
    .find((found) => found?.[2]?.includes(id))
  if (group === null || group === undefined) return []
  const [, controller = "", path] = group
  const text = readOrUndefined(`/sys/fs/cgroup/${controller}${path}/cgroup.procs`) ?? ""
  return text.split("\n").flatMap((pid) => (pid === "" ? [] : [Number(pid)]))
}

/** Returns the effective and the real uid of a process. The set is empty if the process has ended or is a zombie. */
export const liveUids = (pid: number): ReadonlySet<number> => {
  const text = readOrUndefined(`/proc/${pid}/status`) ?? ""
  const [, state = "X"] = /^State:\t(.)/m.exec(text) ?? []
  const [, ...uids] = /^Uid:\t(\d+)\t(\d+)/m.exec(text) ?? []
  return new Set(state === "Z" || state === "X" ? [] : uids.map(Number))
}

/** The pids of all processes except zombies, by their uids. */
export const pidsByUid: Effect.Effect<ReadonlyMap<number, ReadonlyArray<number>>> = inSlices(function* () {
  const found = new Map<number, Array<number>>()
  for (const pid of allPids()) {
    for (const uid of liveUids(pid)) {
      const pids = found.get(uid) ?? []
      pids.push(pid)
      found.set(uid, pids)
    }
    yield
  }
  return found
})

export const bootUptimeMillis = (): number =>
  Math.round(Number((readOrUndefined("/proc/uptime") ?? "0").split(" ")[0]) * 1000)

const networkOf = (pid: number | "self") => ifThere(() => readlinkSync(`/proc/${pid}/ns/net`))

/** Returns the bytes that a process's network namespace received and sent, unless this process shares it. */
export const readNetwork = (
  pid: number
): { readonly rx_bytes: number; readonly tx_bytes: number } | undefined => {
  const namespace = networkOf(pid)
  if (namespace === undefined || namespace === networkOf("self")) return undefined
  const text = readOrUndefined(`/proc/${pid}/net/dev`)
  if (text === undefined) return undefined
  let rx_bytes = 0
  let tx_bytes = 0
  for (const line of text.split("\n").slice(2)) {
    const [name, figures] = line.split(":")
    if (figures === undefined || name?.trim() === "lo") continue
    const fields = figures.trim().split(/\s+/)
    rx_bytes += Number(fields[0] ?? 0)
    tx_bytes += Number(fields[8] ?? 0)
  }
  return { rx_bytes, tx_bytes }
}

/** A UDP socket, or a TCP socket that waits for connections. */
interface Socket {
  /** The address as the kernel writes it: words of four bytes, the last byte first. */
  readonly address: string
  readonly port: number
  readonly udp: boolean
}

/** Bytes of each table of sockets, and open files of a server, that are examined: the server decides how many there are. */
const MAX_TABLE_BYTES = 256 * 1024
const MAX_OPEN = 2000

const readTable = (path: string): string => {
  const file = openSync(path, "r")
  try {
    const text = Buffer.allocUnsafe(MAX_TABLE_BYTES)
    let length = 0
    for (let read = 1; read > 0 && length < MAX_TABLE_BYTES; length += read)
      read = readSync(file, text, length, MAX_TABLE_BYTES - length, null)
    return text.toString("latin1", 0, length)
  } finally {
    closeSync(file)
  }
}

const LISTENING = "0A"

/** Returns sockets of the network namespace of a process, by the target of the links in `/proc/<pid>/fd`. */
function* socketsOf(pid: number | "self", isWanted: (socket: Socket) => boolean) {
  const found = new Map<string, Socket>()
  for (const file of ["tcp", "tcp6", "udp", "udp6"]) {
    yield
    const udp = file.startsWith("udp")
    const table = ifThere(() => readTable(`/proc/${pid}/net/${file}`)) ?? ""
    for (const line of table.split("\n").slice(1)) {
      const [, local = "", , state, , , , , , inode = ""] = line.trim().split(/\s+/)
      const [address = "", port = ""] = local.split(":")
      const socket = { address, port: Number.parseInt(port, 16), udp }
      if ((udp || state === LISTENING) && inode !== "0" && isWanted(socket)) {
        found.set(`socket:[${inode}]`, socket)
      }
    }
  }
  return found
}

const isWildcard = (address: string) => /^0+$/.test(address)

function* filesOf(pid: number): Generator<string> {
  const path = `/proc/${pid}/fd`
  const folder = ifThere(() => opendirSync(path))
  if (folder === undefined) return
  try {
    for (let entry = ifThere(() => folder.readSync()); entry; entry = ifThere(() => folder.readSync())) {
      const { name } = entry
      yield ifThere(() => readlinkSync(`${path}/${name}`)) ?? ""
    }
  } finally {
    folder.closeSync()
  }
}

/** Returns the ports on all addresses (0.0.0.0, ::), each once. It looks at the first {@link MAX_OPEN} open files only. */
export const readBoundToAll = (
  pids: ReadonlyArray<number>
): Effect.Effect<ReadonlyArray<{ readonly port: number; readonly udp: boolean }>> =>
  inSlices(function* () {
    const sockets = yield* socketsOf(pids[0] ?? 0, ({ address }) => isWildcard(address))
    const own = new Map<string, { readonly port: number; readonly udp: boolean }>()
    let open = 0
    for (const pid of sockets.size === 0 ? [] : pids) {
      for (const link of filesOf(pid)) {
        const { port, udp } = sockets.get(link) ?? {}
        if (port !== undefined && udp !== undefined) own.set(`${port}/${udp}`, { port, udp })
        open++
        if (open > MAX_OPEN) return [...own.values()]
        yield
      }
    }
    return [...own.values()]
  })

/** Returns a process that has a port at an address in the kernel's form, if this service may know it. */
export const holderOf = ({ address: wanted, port, udp }: Socket): Effect.Effect<number | undefined> =>
  inSlices(function* () {
    const sockets = yield* socketsOf("self", (socket) => {
      const covers = socket.address === wanted || isWildcard(socket.address) || isWildcard(wanted)
      return covers && socket.port === port && socket.udp === udp
    })
    for (const pid of sockets.size === 0 ? [] : allPids()) {
      for (const link of filesOf(pid)) {
        if (sockets.has(link)) return pid
        yield
      }
    }
    return undefined
  })

/** Returns the name of a process, if it lives. */
export const nameOf = (pid: number): string => readOrUndefined(`/proc/${pid}/comm`)?.trim() ?? ""

import { Effect, Semaphore } from "effect"
import { inSlices } from "../../shared/work/slices.ts"
import { allPids, type Marker, type Proc, readMarker, readProc, readUid } from "../host/procfs.ts"
import type { ProcessUsers } from "./ProcessUsers.ts"

/** Returns the processes without `helpers`, the leader included, and the program. */
export const ownProcesses = (
  procs: ReadonlyArray<Proc>,
  leader: Leader,
  helpers: number
): { readonly own: ReadonlyArray<Proc>; readonly main: Proc | undefined } => {
  const above = new Set<number>()
  let main = procs.find((proc) => proc.pid === leader.pid)
  for (let depth = 0; depth < helpers && main !== undefined; depth++) {
    const { pid } = main
    above.add(pid)
    main = procs.find((proc) => proc.ppid === pid)
  }
  return { own: procs.filter((proc) => !above.has(proc.pid)), main }
}

/** Signals the process group of the program, or all processes if the group is empty; returns whether there were any. */
export const signalOwn = (own: ReadonlyArray<Proc>, leader: Leader, signal: NodeJS.Signals): boolean => {
  const group = own.filter((proc) => proc.pgrp === leader.pid)
  const targets = group.length > 0 ? group : own
  for (const proc of targets) signalProcess(proc.pid, signal)
  return targets.length > 0
}

export const signalProcess = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal)
  } catch {
    // ESRCH: it has ended; EPERM: the pid has another owner
  }
}

export interface Leader {
  readonly pid: number
  readonly start: string
}

interface Identity {
  readonly marker: Marker | undefined
  readonly uid: number | undefined
  /** The time of the first pass that has met the process. */
  readonly seen: number
}

/** A younger process may not have reached its final program and uid. */
const SETTLED_MS = 5000

/** Assigns the processes of the host to the servers of one `node`. Without `users`, all have the daemon's uid. */
export const makeProcessTable = (node: string, users?: Pick<ProcessUsers, "uidOf" | "nameOf">) => {
  let procs: ReadonlyArray<Proc> = []
  let readAt = Number.NEGATIVE_INFINITY
  // Read once per process; a program that clears its environment later keeps its marker.
  let identities = new Map<string, Identity>()

  const pass = inSlices(function* () {
    const now = performance.now()
    const found: Array<Proc> = []
    const next = new Map<string, Identity>()
    for (const pid of allPids()) {
      yield
      const proc = readProc(pid)
      if (proc === undefined) continue
      found.push(proc)
      const key = `${pid}:${proc.start}`
      const known = identities.get(key)
      const seen = known?.seen ?? now
      const settled = known !== undefined && now - seen > SETTLED_MS
      if (settled) {
        next.set(key, known)
        continue
      }
      const uid = users === undefined ? undefined : readUid(pid)
      next.set(key, { marker: known?.marker ?? readMarker(pid), uid, seen })
    }
    procs = found
    readAt = now
    identities = next
  })
  const turn = Semaphore.makeUnsafe(1)
  /** Callers of a moment share a pass. */
  const refresh = (maxAgeMs: number) =>
    Effect.suspend(() => {
      const oldest = performance.now() - maxAgeMs
      return turn.withPermit(Effect.suspend(() => (readAt >= oldest ? Effect.void : pass)))
    })

  const identityOf = (proc: Proc) => identities.get(`${proc.pid}:${proc.start}`)
  const ownerOf = (proc: Proc) => {
    const uid = identityOf(proc)?.uid
    return uid === undefined ? undefined : users?.nameOf(uid)
  }
  const markerOf = (proc: Proc) => {
    const marker = identityOf(proc)?.marker
    if (marker?.node !== node) return undefined
    // The uid of a server overrides the marker of the process.
    const owner = ownerOf(proc)
    const own = owner === undefined || owner === marker.server
    const isJob = owner?.startsWith("software:") === true && marker.server.startsWith("install:")
    return own || isJob ? marker.server : undefined
  }

  const membersNow = (server: string, leader: Leader | undefined): ReadonlyArray<Proc> => {
    // Excludes a group whose number was reused by another process.
    const reused = procs.some((proc) => proc.pid === leader?.pid && proc.start !== leader.start)
    const group = leader === undefined || reused ? undefined : leader.pid
    const uid = users?.uidOf(server)
    const hasUid = (proc: Proc) => uid !== undefined && identityOf(proc)?.uid === uid
    const belongs = new Set<number>()
    for (const proc of procs) {
      const inGroup = group !== undefined && (proc.pgrp === group || proc.session === group)
      if (inGroup || hasUid(proc) || markerOf(proc) === server) belongs.add(proc.pid)
    }
    const children = Map.groupBy(procs, ({ ppid }) => ppid)
    // Also visits those that it adds.
    for (const pid of belongs) for (const child of children.get(pid) ?? []) belongs.add(child.pid)
    return procs.filter((proc) => belongs.has(proc.pid) && proc.pid !== process.pid)
  }

  return {
    /** Returns a server's live processes by uid, marker, leader and descent, at most `maxAgeMs` old. */
    members: (server: string, leader: Leader | undefined, maxAgeMs: number) =>
      Effect.map(refresh(maxAgeMs), () => membersNow(server, leader)),
    names: Effect.map(
      refresh(0),
      () =>
        new Set(procs.flatMap((proc) => [markerOf(proc), ownerOf(proc)]).filter((name) => name !== undefined))
    )
  }
}

export type ProcessTable = ReturnType<typeof makeProcessTable>

import { type Marker, type Proc, readMarker, readProcs } from "../host/procfs.ts"

/** The process that leads a run; pid and start time name it for good. */
export interface Leader {
  readonly pid: number
  readonly start: string
}

/** Which processes belong to which server of one node. */
export interface ProcessTable {
  /**
   * Live processes of a server: those that carry its marker, those of its leader's group and session, and all
   * descendants. `max_age_ms`: how old the look at the kernel may be.
   */
  members(server: string, leader: Leader | undefined, max_age_ms: number): ReadonlyArray<Proc>
  /** Names in the markers of all live processes of this node. */
  names(): ReadonlySet<string>
}

/** A process younger than this may not have become what it was started as. */
const SETTLED_MS = 5000

/**
 * @param node identity of the node and its data folder: what `MUSTER_NODE` says in the environment of its processes
 */
export const makeProcessTable = (node: string): ProcessTable => {
  let procs: ReadonlyArray<Proc> = []
  let takenAt = Number.NEGATIVE_INFINITY
  // A marker is read once for each process; programs that clear their environment later keep it.
  let markers = new Map<string, Marker | undefined>()
  let firstSeen = new Map<string, number>()

  const look = (max_age_ms: number): void => {
    const now = performance.now()
    if (now - takenAt <= max_age_ms) return
    procs = readProcs()
    takenAt = now
    const nextMarkers = new Map<string, Marker | undefined>()
    const nextSeen = new Map<string, number>()
    for (const { pid, start } of procs) {
      const key = `${pid}:${start}`
      const seen = firstSeen.get(key) ?? now
      const known = markers.get(key)
      const settled = now - seen > SETTLED_MS && markers.has(key)
      nextSeen.set(key, seen)
      nextMarkers.set(key, known !== undefined || settled ? known : readMarker(pid))
    }
    markers = nextMarkers
    firstSeen = nextSeen
  }

  const markerOf = (proc: Proc) => {
    const marker = markers.get(`${proc.pid}:${proc.start}`)
    return marker?.node === node ? marker.server : undefined
  }

  const members = (server: string, leader: Leader | undefined, max_age_ms: number): ReadonlyArray<Proc> => {
    look(max_age_ms)
    // A group whose number now belongs to another process is not ours.
    const reused = procs.some((proc) => proc.pid === leader?.pid && proc.start !== leader.start)
    const group = leader === undefined || reused ? undefined : leader.pid
    const belongs = new Set<number>()
    for (const proc of procs) {
      const inGroup = group !== undefined && (proc.pgrp === group || proc.session === group)
      if (inGroup || markerOf(proc) === server) belongs.add(proc.pid)
    }
    for (let grown = belongs.size > 0; grown; ) {
      const before = belongs.size
      for (const proc of procs) if (belongs.has(proc.ppid)) belongs.add(proc.pid)
      grown = belongs.size > before
    }
    return procs.filter((proc) => belongs.has(proc.pid) && proc.pid !== process.pid)
  }

  const names = (): ReadonlySet<string> => {
    look(0)
    return new Set(procs.map(markerOf).filter((name) => name !== undefined))
  }

  return { members, names }
}

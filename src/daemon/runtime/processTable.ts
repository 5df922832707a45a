import { type Marker, type Proc, readMarker, readProcs, readUid } from "../host/procfs.ts"

/** The process that leads a run; pid and start time name it for good. */
export interface Leader {
  readonly pid: number
  readonly start: string
}

/** Which processes belong to which server of one node. */
export interface ProcessTable {
  /**
   * Live processes of a server: those of its uid, those that carry its marker, those of its leader's group and session,
   * and all descendants. `max_age_ms`: how old the look at the kernel may be.
   */
  members(server: string, leader: Leader | undefined, max_age_ms: number): ReadonlyArray<Proc>
  /** Names in the markers of all live processes of this node, and the names that their uids were given to. */
  names(): ReadonlySet<string>
}

/** Whose uid is whose. */
export interface UidNames {
  readonly uidOf: (name: string) => number | undefined
  readonly nameOf: (uid: number) => string | undefined
}

/** What of a process stays the same once it is what it was started as. */
interface Identity {
  readonly marker: Marker | undefined
  readonly uid: number | undefined
}

/** A process younger than this may not have become what it was started as. */
const SETTLED_MS = 5000

/**
 * @param node identity of the node and its data folder: what `MUSTER_NODE` says in the environment of its processes
 * @param users absent where all processes have the uid of the daemon
 */
export const makeProcessTable = (node: string, users?: UidNames): ProcessTable => {
  let procs: ReadonlyArray<Proc> = []
  let takenAt = Number.NEGATIVE_INFINITY
  // Read once for each process; programs that clear their environment later keep their marker.
  let identities = new Map<string, Identity>()
  let firstSeen = new Map<string, number>()

  const look = (max_age_ms: number): void => {
    const now = performance.now()
    if (now - takenAt <= max_age_ms) return
    procs = readProcs()
    takenAt = now
    const next = new Map<string, Identity>()
    const nextSeen = new Map<string, number>()
    for (const { pid, start } of procs) {
      const key = `${pid}:${start}`
      const seen = firstSeen.get(key) ?? now
      const known = identities.get(key)
      const settled = known !== undefined && now - seen > SETTLED_MS
      nextSeen.set(key, seen)
      next.set(key, settled ? known : { marker: known?.marker ?? readMarker(pid), uid: uidOfProc(pid) })
    }
    identities = next
    firstSeen = nextSeen
  }

  const uidOfProc = (pid: number) => (users === undefined ? undefined : readUid(pid))
  const identityOf = (proc: Proc) => identities.get(`${proc.pid}:${proc.start}`)
  /** The name that the uid of a process was given to. */
  const ownerOf = (proc: Proc) => {
    const uid = identityOf(proc)?.uid
    return uid === undefined ? undefined : users?.nameOf(uid)
  }
  const markerOf = (proc: Proc) => {
    const marker = identityOf(proc)?.marker
    if (marker?.node !== node) return undefined
    // A process with the uid of a server is that one's, whatever it says of itself.
    const owner = ownerOf(proc)
    const own = owner === undefined || owner === marker.server
    const isJob = owner?.startsWith("software:") === true && marker.server.startsWith("install:")
    return own || isJob ? marker.server : undefined
  }

  const members = (server: string, leader: Leader | undefined, max_age_ms: number): ReadonlyArray<Proc> => {
    look(max_age_ms)
    // A group whose number now belongs to another process is not ours.
    const reused = procs.some((proc) => proc.pid === leader?.pid && proc.start !== leader.start)
    const group = leader === undefined || reused ? undefined : leader.pid
    const uid = users?.uidOf(server)
    const hasUid = (proc: Proc) => uid !== undefined && identityOf(proc)?.uid === uid
    const belongs = new Set<number>()
    for (const proc of procs) {
      const inGroup = group !== undefined && (proc.pgrp === group || proc.session === group)
      if (inGroup || hasUid(proc) || markerOf(proc) === server) belongs.add(proc.pid)
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
    const found = procs.flatMap((proc) => [markerOf(proc), ownerOf(proc)])
    return new Set(found.filter((name) => name !== undefined))
  }

  return { members, names }
}

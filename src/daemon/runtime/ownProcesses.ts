/** The processes of a server or job, apart from those that stay above its program. */
import type { Proc } from "../host/procfs.ts"
import type { Leader } from "./processTable.ts"

/**
 * The processes without those that stay above the program, and the program.
 *
 * @param helpers how many stay above it, the leader first
 */
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

/** Sends a signal to the group of the program, or else to all that there is; answers whether there was anything. */
export const signalOwn = (own: ReadonlyArray<Proc>, leader: Leader, signal: NodeJS.Signals): boolean => {
  const group = own.filter((proc) => proc.pgrp === leader.pid)
  const targets = group.length > 0 ? group : own
  for (const proc of targets) signalProcess(proc.pid, signal)
  return targets.length > 0
}

/** Sends a signal to a process; one that has gone is no error. */
export const signalProcess = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal)
  } catch {
    // ESRCH: it has ended in the meantime; EPERM: it is not ours any more
  }
}

/** The processes of a server or job, without the helpers above its program. */
import type { Proc } from "../host/procfs.ts"
import type { Leader } from "./processTable.ts"

/**
 * Returns the processes without the helpers, and the program.
 * @param helpers number of helpers, the leader included
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

/** Signals the process group of the program, or all processes if the group is empty; returns whether there were any. */
export const signalOwn = (own: ReadonlyArray<Proc>, leader: Leader, signal: NodeJS.Signals): boolean => {
  const group = own.filter((proc) => proc.pgrp === leader.pid)
  const targets = group.length > 0 ? group : own
  for (const proc of targets) signalProcess(proc.pid, signal)
  return targets.length > 0
}

/** Signals a process; a missing process is no error. */
export const signalProcess = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal)
  } catch {
    // ESRCH: it has ended; EPERM: the pid has another owner
  }
}

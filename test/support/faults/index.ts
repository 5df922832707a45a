/**
 * What tests break, one file each. All are a {@link Fault}: `inject` breaks, `heal` mends, `during(fault, effect)` does
 * both around something. All work on real processes, sockets and file systems, while what is tested runs.
 *
 * | What | From | Faults |
 * |---|---|---|
 * | a replica, a control plane, a daemon | `restartable("replica", startService({...}))`, `restartable("node", startNode({...}))` | `killed` (kill -9; healed: started again), `frozen` (SIGSTOP) |
 * | PostgreSQL with all its backends | `postgresFaults(yield* startPostgres())` | `stopped`, `killed`, `frozen` |
 * | a connection to PostgreSQL, a daemon or the control plane | `tcpProxy(port)`: its `through(url)` in place of the url | `dropped` (RST), `swallowed` (black hole), `delayed(ms)`; `cutAt` in the middle of an answer |
 * | a disk | `smallDisk(mib)`: its `path` as a data folder | `full` |
 * | the wall clock of one process | `wallClock`: its `env` for the process | `jumped(ms)` |
 */
export { during, type Fault, FaultFailed } from "./Fault.ts"
export { postgresFaults } from "./postgresFaults.ts"
export { type Restartable, restartable } from "./restartable.ts"
export { makeRestartingService, type RestartingService } from "./restartingService.ts"
export { type SmallDisk, smallDisk, smallDiskNote, withSmallDisk } from "./smallDisk.ts"
export { type TcpProxy, tcpProxy } from "./tcpProxy.ts"
export { type WallClock, wallClock, wallClockNote, withWallClock } from "./wallClock.ts"

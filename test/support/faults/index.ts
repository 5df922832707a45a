/**
 * The faults of the tests, one file each. Every fault is a {@link Fault}: `inject`, `heal`, and `during(fault, effect)`
 * for both around an effect. They act on real processes, sockets and file systems.
 *
 * | Target | From | Faults |
 * |---|---|---|
 * | a replica, a control plane, a daemon | `restartable("replica", startService({...}))`, `restartable("node",
 * startNode({...}))` | `killed` (kill -9; healed: started again), `frozen` (SIGSTOP) |
 * | PostgreSQL with all its backends | `postgresFaults(yield* startPostgres())` | `stopped`, `killed`, `frozen` |
 * | a connection to PostgreSQL, a daemon or the control plane | `tcpProxy(port)`: its `through(url)` instead of the URL
 * | `dropped` (RST), `swallowed` (black hole), `delayed(ms)`; `cutAt` in the middle of a response |
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

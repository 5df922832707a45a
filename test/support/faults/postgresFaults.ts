import { Effect } from "effect"
import type { PostgresFailed, PostgresServer } from "../postgres.ts"
import { type Fault, FaultFailed } from "./Fault.ts"

const failed = Effect.mapError((error: PostgresFailed) => new FaultFailed({ message: error.message }))

/** Faults of the PostgreSQL main process and its backends; data and port stay the same. */
export const postgresFaults = (server: PostgresServer) =>
  ({
    /** A regular shutdown: every connection is closed. */
    stopped: { name: "PostgreSQL is stopped", inject: failed(server.stop), heal: failed(server.start) },
    /** The same effect as a power failure. */
    killed: { name: "PostgreSQL is killed", inject: failed(server.kill), heal: failed(server.start) },
    /** The processes are stopped; the kernel still accepts connections. */
    frozen: { name: "PostgreSQL is frozen", inject: server.freeze, heal: server.thaw }
  }) satisfies Record<string, Fault>

import { Effect } from "effect"
import type { PostgresFailed, PostgresServer } from "../postgres.ts"
import { type Fault, FaultFailed } from "./Fault.ts"

const failed = Effect.mapError((error: PostgresFailed) => new FaultFailed({ message: error.message }))

/** PostgreSQL, its own process and that of every connection; it keeps its data and port. */
export const postgresFaults = (server: PostgresServer) =>
  ({
    /** As an administrator stops it: it says good-bye to every connection. */
    stopped: { name: "PostgreSQL is stopped", inject: failed(server.stop), heal: failed(server.start) },
    /** As a power failure does. */
    killed: { name: "PostgreSQL is killed", inject: failed(server.kill), heal: failed(server.start) },
    /** It stands still; the kernel still accepts connections for it. */
    frozen: { name: "PostgreSQL is frozen", inject: server.freeze, heal: server.thaw }
  }) satisfies Record<string, Fault>

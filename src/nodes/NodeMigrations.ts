import { Context, type Effect } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import type { MigrationProgress } from "../domain/Migration.ts"

/** Drained nodes whose saved servers move to other nodes; whoever knows the servers does it. */
export class NodeMigrations extends Context.Service<
  NodeMigrations,
  {
    /**
     * The saved servers that are on the node now are to move; durable. A second time those that came since count too,
     * and what has failed is tried again.
     */
    evacuate(node_id: string): Effect.Effect<void, Unavailable>
    /** No further server leaves the node; what has begun goes on. */
    stay(node_id: string): Effect.Effect<void, Unavailable>
    /** Undefined: its servers are not to move. */
    progress(node_id: string): Effect.Effect<MigrationProgress | undefined>
  }
>()("muster/nodes/NodeMoves") {}

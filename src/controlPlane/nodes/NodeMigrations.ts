import { Context, type Effect } from "effect"
import type { DrainChoices, DrainPlan } from "../../contract/domain/Drain.ts"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { MigrationProgress } from "../../contract/domain/Migration.ts"

/** Migrates the saved servers of drained nodes to other nodes. The servers' folder implements it. */
export class NodeMigrations extends Context.Service<
  NodeMigrations,
  {
    /** Begins durably to migrate the node's saved servers. A second call adds new ones and retries failed ones. */
    begin(node_id: NodeId, choices?: DrainChoices): Effect.Effect<void, Unavailable>
    /** Returns what {@link begin} would do now. Stores and reserves nothing. */
    plan(node_id: NodeId): Effect.Effect<DrainPlan>
    /** Ends further migrations from the node. Those that have begun continue. */
    end(node_id: NodeId): Effect.Effect<void, Unavailable>
    /** Returns nothing if the servers of the node are not migrated. */
    progress(node_id: NodeId): Effect.Effect<MigrationProgress | undefined>
  }
>()("muster/nodes/NodeMigrations") {}

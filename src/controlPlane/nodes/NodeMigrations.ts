import { Context, type Effect } from "effect"
import type { DrainChoices, DrainPlan } from "../../contract/domain/Drain.ts"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { MigrationProgress } from "../../contract/domain/Migration.ts"

/** The migration of the saved servers of drained nodes to other nodes; implemented beside the servers. */
export class NodeMigrations extends Context.Service<
  NodeMigrations,
  {
    /**
     * Begins to migrate the saved servers that are on the node now; durable. A second call includes the servers that
     * came since, and retries the failed ones.
     */
    begin(node_id: NodeId, choices?: DrainChoices): Effect.Effect<void, Unavailable>
    /** Returns what {@link begin} would do now; stores and reserves nothing. */
    plan(node_id: NodeId): Effect.Effect<DrainPlan>
    /** Ends it: no further migration from the node begins; those that have begun continue. */
    end(node_id: NodeId): Effect.Effect<void, Unavailable>
    /** The progress; undefined: the servers of the node are not migrated. */
    progress(node_id: NodeId): Effect.Effect<MigrationProgress | undefined>
  }
>()("muster/nodes/NodeMigrations") {}

import { Context, type Effect } from "effect"
import type { Allocations } from "../domain/Allocation.ts"
import type { PlacementRule } from "../domain/Blueprint.ts"
import type { NotFound, Unavailable } from "../domain/errors.ts"
import type { Limits } from "../domain/Limits.ts"
import type { RuntimeKind } from "../domain/Node.ts"
import type { ServerRecord } from "../domain/Server.ts"

/** What a server needs of its node. */
export interface PlacementRequest {
  readonly server_id: string
  readonly blueprint_id: string
  /** Named by the caller: drained or not, this node or none. */
  readonly node_id?: string
  readonly limits: Limits
  readonly ports: number
  readonly runtimes: ReadonlyArray<RuntimeKind>
  readonly placement: PlacementRule
}

/** Where a server goes; its capacity and ports are held from the moment this is returned. */
export interface Placement {
  readonly node_id: string
  readonly allocations: Allocations
}

/**
 * Chooses nodes and commits their capacity and ports at once (node-protocol, "Placement and ports").
 */
export class LoadBalancer extends Context.Service<
  LoadBalancer,
  {
    /**
     * @error NotFound    the named node is not known
     * @error Unavailable no node fits, or the named one is full or not connected
     */
    place(request: PlacementRequest): Effect.Effect<Placement, NotFound | Unavailable>
    /** Gives back what a server holds; nothing when it holds nothing. */
    release(server_id: string): Effect.Effect<void>
    /** Holds what existing records hold: at start, and for ports that somebody else was found to hold. */
    restore(records: ReadonlyArray<ServerRecord>): Effect.Effect<void>
  }
>()("muster/nodes/LoadBalancer") {}

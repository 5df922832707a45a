import { Context, Effect, Layer, type Option } from "effect"
import type { Allocations } from "../../../contract/domain/Allocation.ts"
import type {
  Conflict,
  Forbidden,
  InvalidRequest,
  NotFound,
  Unavailable
} from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { ServerPatch } from "../../../contract/domain/Labels.ts"
import type { DaemonServer, Report, TakenPort } from "../../../contract/domain/NodeMessages.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { makePortReplacements } from "./portReplacements.ts"
import { makeRecordChanges } from "./recordChanges.ts"
import { makeRedefinitions, type NewDefinition, type Redefined } from "./redefinitions.ts"
import { makeReportedChanges } from "./reportedChanges.ts"
import { makeRequestedChanges } from "./requestedChanges.ts"

/**
 * The changes of a server's record after its creation, each one write with its journal entries. The deletion of a
 * record also makes its node delete the files.
 */
export class ServerLifecycle extends Context.Service<
  ServerLifecycle,
  {
    /**
     * Applies reports of a node in one write, in order per server, and returns unknown servers. Repetitions change
     * nothing; a report from another node repeats the pending deletion there.
     */
    reports(
      node_id: NodeId,
      reports: ReadonlyArray<Report>
    ): Effect.Effect<ReadonlySet<ServerId>, Unavailable>
    /** Applies a snapshot of one server. Returns false if a pending report, or one after `sequence`, may be newer. */
    observe(node_id: NodeId, view: DaemonServer, sequence: number): Effect.Effect<boolean, Unavailable>
    /** Applies that the node does not have the server. */
    missing(node_id: NodeId, id: ServerId): Effect.Effect<void, Unavailable>
    /** Sets the servers of a lost node to `unknown`, unless the node is connected again. */
    nodeLost(node_id: NodeId, ids: ReadonlyArray<ServerId>): Effect.Effect<void, Unavailable>
    /** Deletes the servers of a node that is given up, except saved ones, unless the node is connected again. */
    nodeGivenUp(node_id: NodeId, ids: ReadonlyArray<ServerId>): Effect.Effect<void, Unavailable>
    /** Marks servers for verification by the leader, as their nodes may have lost them. */
    markForVerification(ids: ReadonlyArray<ServerId>): Effect.Effect<void, Unavailable>
    verified(id: ServerId): Effect.Effect<void, Unavailable>
    refuseInstall(id: ServerId, reason: string): Effect.Effect<void, Unavailable>
    /** Starts a server once installed; false unless it is installing. @error Conflict it is being deleted */
    deferStart(id: ServerId): Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    /** Cancels a pending start, also after a migration. `because` is the node's reason, if it refused. */
    forgetStart(
      id: ServerId,
      because?: { readonly status: number; readonly detail: string; readonly hint: string }
    ): Effect.Effect<void, Unavailable>
    /** Records the stop of a saved server whose node is away. Returns false if it is unsaved or migrates. */
    stopAway(id: ServerId, by: string): Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    /** Records that the node has such a stop, or that a start has cancelled it. */
    stopDelivered(id: ServerId): Effect.Effect<void, Unavailable>
    /** Makes an installation pending; returns the record before. @error Conflict the server is not offline */
    reinstall(id: ServerId): Effect.Effect<ServerRecord, NotFound | Conflict | Unavailable>
    /** Undoes {@link reinstall}, unless the node has reported an installation since. */
    undoReinstall(before: ServerRecord): Effect.Effect<void, Unavailable>
    /**
     * Changes name, labels and expiry, unless the check of the present record fails.
     * @error Conflict       the server is being deleted
     * @error InvalidRequest too many labels
     */
    patch<E = never>(
      id: ServerId,
      change: ServerPatch,
      check?: (record: ServerRecord) => Effect.Effect<void, E>
    ): Effect.Effect<void, NotFound | Conflict | InvalidRequest | Unavailable | E>
    /**
     * Changes a server's definition, overrides and reservation in one write; {@link Provisioner} delivers them. `by`
     * decides on the present record, and only reads memory.
     * @error Conflict       the server is deleted, migrates, needs more ports, or must be offline to reinstall
     * @error InvalidRequest too many labels
     * @error Forbidden      the quota of the key does not allow the memory limit
     * @error Unavailable    the limits do not fit on the node
     */
    redefine<E = never>(
      id: ServerId,
      by: (record: ServerRecord) => Effect.Effect<NewDefinition, E>
    ): Effect.Effect<Redefined, NotFound | Conflict | Forbidden | InvalidRequest | Unavailable | E>
    /** Records that the node has accepted the definition of this time. */
    delivered(id: ServerId, defined_at: number): Effect.Effect<void, Unavailable>
    /** Publishes that a server expires soon, once for each expiry. */
    announceExpiry(record: ServerRecord): Effect.Effect<void, Unavailable>
    /**
     * Replaces a server's ports that a program has, and returns its allocations. Ports of others are ignored.
     * @error NotFound the server is not on the node
     * @error Conflict it is deleted or migrates, or no port is free
     */
    replacePorts(
      node_id: NodeId,
      id: ServerId,
      taken: ReadonlyArray<TakenPort>
    ): Effect.Effect<Allocations, NotFound | Conflict | Unavailable>
    /** Records that a removal begins, so that it continues after a crash. Returns the record. */
    beginRemoval(
      id: ServerId,
      onlyIf?: (record: ServerRecord) => boolean
    ): Effect.Effect<Option.Option<ServerRecord>, Unavailable>
    giveUpRemoval(id: ServerId): Effect.Effect<void, Unavailable>
    /** Deletes the record; false if there is none. Its nodes other than `from` must delete the files. */
    remove(id: ServerId, from?: NodeId): Effect.Effect<boolean, Unavailable>
    sequences(
      node_id: NodeId,
      ids: ReadonlyArray<ServerId>
    ): Effect.Effect<ReadonlyMap<ServerId, number>, Unavailable>
    /** Returns `last_sequence` of a server, if it is on the node. */
    sequence(node_id: NodeId, id: ServerId): Effect.Effect<number | undefined, Unavailable>
  }
>()("muster/servers/ServerLifecycle") {
  static readonly layer = Layer.effect(
    ServerLifecycle,
    Effect.gen(function* () {
      const records = yield* makeRecordChanges
      const requested = yield* makeRequestedChanges(records)
      const reported = yield* makeReportedChanges(records)
      return ServerLifecycle.of({
        ...reported,
        ...requested,
        ...(yield* makeRedefinitions(records)),
        ...(yield* makePortReplacements)
      })
    })
  )
}

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
 * The changes of a server's record after its creation: each one write, with its journal entries. The write that deletes a
 * record also makes its node delete the files.
 */
export class ServerLifecycle extends Context.Service<
  ServerLifecycle,
  {
    /**
     * Applies reports of a node in one write, those of one server in their order; returns the unknown servers.
     * Repetitions change nothing. A report about a server of another node repeats its pending deletion there.
     */
    reports(
      node_id: NodeId,
      reports: ReadonlyArray<Report>
    ): Effect.Effect<ReadonlySet<ServerId>, Unavailable>
    /**
     * Applies a snapshot of one server. False: a report is pending on the node, or was applied after the record had
     * `sequence`, and may be newer.
     */
    observe(node_id: NodeId, view: DaemonServer, sequence: number): Effect.Effect<boolean, Unavailable>
    /** Applies that the node does not have the server. */
    missing(node_id: NodeId, id: ServerId): Effect.Effect<void, Unavailable>
    /** Sets the servers of a lost node to `unknown`, unless the node is connected again. */
    nodeLost(node_id: NodeId, ids: ReadonlyArray<ServerId>): Effect.Effect<void, Unavailable>
    /** Deletes the servers of a node that is given up, except saved ones, unless the node is connected again. */
    nodeGivenUp(node_id: NodeId, ids: ReadonlyArray<ServerId>): Effect.Effect<void, Unavailable>
    /** Marks servers for verification by the leader, because their nodes may have lost them. */
    markForVerification(ids: ReadonlyArray<ServerId>): Effect.Effect<void, Unavailable>
    /** Ends the verification of a server. */
    verified(id: ServerId): Effect.Effect<void, Unavailable>
    /** Fails the installation of a server permanently. */
    refuseInstall(id: ServerId, reason: string): Effect.Effect<void, Unavailable>
    /** Starts a server once it is installed; false: it is not installing. @error Conflict it is being deleted */
    deferStart(id: ServerId): Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    /** Cancels a pending start, also one after a migration; `because`: the node has refused it. */
    forgetStart(
      id: ServerId,
      because?: { readonly status: number; readonly detail: string; readonly hint: string }
    ): Effect.Effect<void, Unavailable>
    /** Records the stop of a saved server whose node is away; false: it is not saved, or migrates. */
    stopAway(id: ServerId, by: string): Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    /** Records that the node has such a stop, or that a start has cancelled it. */
    stopDelivered(id: ServerId): Effect.Effect<void, Unavailable>
    /** Makes an installation pending again; returns the record as it was. @error Conflict the server is not offline */
    reinstall(id: ServerId): Effect.Effect<ServerRecord, NotFound | Conflict | Unavailable>
    /** Undoes {@link reinstall}, unless the node has reported an installation since. */
    undoReinstall(before: ServerRecord): Effect.Effect<void, Unavailable>
    /**
     * Changes name, labels and expiry, unless the check of the present record fails.
     *
     * @error Conflict       the server is being deleted
     * @error InvalidRequest too many labels
     */
    patch<E = never>(
      id: ServerId,
      change: ServerPatch,
      check?: (record: ServerRecord) => Effect.Effect<void, E>
    ): Effect.Effect<void, NotFound | Conflict | InvalidRequest | Unavailable | E>
    /**
     * Changes the definition of a server, its overrides and its reservation in one write; {@link Provisioner} delivers
     * it to the node. `by` decides on the present record, and only reads memory.
     *
     * @error Conflict    the server is being deleted or migrates, needs more ports, or is to be reinstalled and not offline
     * @error InvalidRequest too many labels
     * @error Forbidden      the quota of the key does not allow the memory limit
     * @error Unavailable the limits do not fit on the node
     */
    redefine<E = never>(
      id: ServerId,
      by: (record: ServerRecord) => Effect.Effect<NewDefinition, E>
    ): Effect.Effect<Redefined, NotFound | Conflict | Forbidden | InvalidRequest | Unavailable | E>
    /** Records that the node has accepted the definition of a time. */
    delivered(id: ServerId, defined_at: number): Effect.Effect<void, Unavailable>
    /** Publishes that a server expires soon, once for each expiry. */
    announceExpiry(record: ServerRecord): Effect.Effect<void, Unavailable>
    /**
     * Replaces ports of a server that a program of its node has; returns its allocations. Ports that it does not have
     * are ignored.
     *
     * @error NotFound the server is not on the node
     * @error Conflict it is deleted or migrates, or no port is free
     */
    replacePorts(
      node_id: NodeId,
      id: ServerId,
      taken: ReadonlyArray<TakenPort>
    ): Effect.Effect<Allocations, NotFound | Conflict | Unavailable>
    /** Records that a removal begins, so that it continues after a crash; returns the record. */
    beginRemoval(
      id: ServerId,
      onlyIf?: (record: ServerRecord) => boolean
    ): Effect.Effect<Option.Option<ServerRecord>, Unavailable>
    /** Records that the node has refused a removal. */
    giveUpRemoval(id: ServerId): Effect.Effect<void, Unavailable>
    /**
     * Deletes the record; false: there is none.
     *
     * @param from the node that has deleted the files; any other node of the record is made to delete them
     */
    remove(id: ServerId, from?: NodeId): Effect.Effect<boolean, Unavailable>
    /** Returns `last_sequence` of the servers on a node, by id. */
    sequences(
      node_id: NodeId,
      ids: ReadonlyArray<ServerId>
    ): Effect.Effect<ReadonlyMap<ServerId, number>, Unavailable>
    /** Returns `last_sequence` of a server; undefined: it is not on the node. */
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

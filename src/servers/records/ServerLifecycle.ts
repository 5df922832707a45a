import { Array as Arr, Clock, Context, Effect, Layer, Option } from "effect"
import type { SqlError } from "effect/sql"
import { type Conflict, NotFound, type Unavailable } from "../../domain/errors.ts"
import { pendingInstall } from "../../domain/InstallState.ts"
import { isUnderway } from "../../domain/Migration.ts"
import type { DaemonServer, Report } from "../../domain/NodeMessages.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { CapacityRepo } from "../../store/repos/CapacityRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store, type Transaction } from "../../store/Store.ts"
import { makeMigrationRecords } from "./migrationRecords.ts"
import { isMoving, notOffline } from "./power.ts"
import { logChange, makeMarkForVerification, makeRecordChanges } from "./recordChanges.ts"
import {
  changesNothing,
  isFinished,
  onInstallRefused,
  onMissing,
  onNodeLost,
  onReport,
  onSnapshot,
  type Transition
} from "./transitions.ts"

/**
 * Added to the sequence of a server that its node has lost and installs again: late reports of the lost instance must
 * not count, and a removal of it must be older than the new instance.
 */
const LOSS_GAP = 1_000
/** The largest step of the sequence by one report: a faulty node must not use up the sequences of later nodes. */
const LARGEST_STEP = 1_000_000
/** Servers that one write changes. */
const BATCH = 100

/**
 * The changes of a server's record after its creation: each one write, with its journal entries. The write that deletes a
 * record also makes its node delete the files.
 */
export class ServerLifecycle extends Context.Service<
  ServerLifecycle,
  {
    /**
     * Applies a report of a node. A repetition changes nothing, nor does a report about a server of another node: a
     * pending deletion on the node is repeated then. False: the server is unknown.
     */
    report(node_id: string, report: Report): Effect.Effect<boolean, Unavailable>
    /**
     * Applies a snapshot of one server. False: a report is pending on the node, or was applied after the record had
     * `sequence`, and may be newer.
     */
    observe(node_id: string, view: DaemonServer, sequence: number): Effect.Effect<boolean, Unavailable>
    /** Applies that the node does not have the server. */
    missing(node_id: string, id: string): Effect.Effect<void, Unavailable>
    /** Sets the servers of a lost node to `unknown`, unless the node is connected again. */
    nodeLost(node_id: string, ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** Deletes the servers of a node that is given up, except saved ones, unless the node is connected again. */
    nodeGivenUp(node_id: string, ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** Marks servers for verification by the leader, because their nodes may have lost them. */
    markForVerification(ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** Ends the verification of a server. */
    verified(id: string): Effect.Effect<void, Unavailable>
    /** Fails the installation of a server permanently. */
    refuseInstall(id: string, reason: string): Effect.Effect<void, Unavailable>
    /** Cancels a pending start, also one after a migration. */
    forgetStart(id: string): Effect.Effect<void, Unavailable>
    /** Makes an installation pending again; returns the record as it was. @error Conflict the server is not offline */
    reinstall(id: string): Effect.Effect<ServerRecord, NotFound | Conflict | Unavailable>
    /** Undoes {@link reinstall}, unless the node has reported an installation since. */
    undoReinstall(before: ServerRecord): Effect.Effect<void, Unavailable>
    /** Records that a removal begins, so that it continues after a crash; returns the record. */
    beginRemoval(id: string): Effect.Effect<Option.Option<ServerRecord>, Unavailable>
    /** Records that the node has refused a removal. */
    giveUpRemoval(id: string): Effect.Effect<void, Unavailable>
    /**
     * Deletes the record; false: there is none.
     *
     * @param from the node that has deleted the files; any other node of the record is made to delete them
     */
    remove(id: string, from?: string): Effect.Effect<boolean, Unavailable>
    /** Returns `last_sequence` of the servers on a node, by id. */
    sequences(
      node_id: string,
      ids: ReadonlyArray<string>
    ): Effect.Effect<ReadonlyMap<string, number>, Unavailable>
  }
>()("muster/servers/ServerLifecycle") {
  static readonly layer = Layer.effect(
    ServerLifecycle,
    Effect.gen(function* () {
      const store = yield* Store
      const servers = yield* ServerRepo
      const rooms = yield* CapacityRepo
      const migrationRepo = yield* MigrationRepo
      const migrationRecords = yield* makeMigrationRecords
      const mark = yield* makeMarkForVerification
      const { carryOut, change, changeAll, decide, onRecord } = yield* makeRecordChanges

      const write = <A>(mutation: Effect.Effect<A, SqlError.SqlError, Transaction>) => store.write(mutation)

      const inBatches = (
        ids: ReadonlyArray<string>,
        mutation: (batch: ReadonlyArray<string>) => Effect.Effect<void, SqlError.SqlError, Transaction>
      ) => Effect.forEach(Arr.chunksOf(ids, BATCH), (batch) => write(mutation(batch)), { discard: true })

      /** Changes servers of a disconnected node, unless it has connected or a server is on another node by now. */
      const changeAway = (
        node_id: string,
        ids: ReadonlyArray<string>,
        by: (record: ServerRecord) => Transition
      ): Effect.Effect<void, Unavailable> =>
        inBatches(
          ids,
          Effect.fnUntraced(function* (batch) {
            if (yield* rooms.isConnected(node_id)) return
            yield* changeAll(batch, (record) => (record.node_id === node_id ? by(record) : {}))
          })
        )

      const report = Effect.fn("ServerLifecycle.report")(function* (node_id: string, message: Report) {
        const id = message.server_id
        const apply = Effect.fnUntraced(function* (record: ServerRecord | undefined) {
          if (record?.node_id !== node_id) {
            // Reports of the source node of a migration do not count; it keeps the files until the server has arrived.
            const migration = Option.getOrUndefined(yield* migrationRepo.find(id))
            if (migration?.from_node === node_id) return { known: true }
            if (!(yield* migrationRepo.deletionsOf(id)).includes(node_id)) return { known: false }
            yield* migrationRecords.deleteOn(record ?? { id, blueprint_id: "" }, node_id)
            return { known: true }
          }
          if (message.sequence <= record.last_sequence) return { known: true }
          const outcome = onReport(record, message)
          const sequence = Math.min(message.sequence, record.last_sequence + LARGEST_STEP)
          yield* carryOut(record, outcome, { sequence })
          return { known: true, changed: { record, outcome } }
        })
        const { changed, known } = yield* onRecord(id, apply)
        yield* logChange(changed)
        return known
      }, Effect.uninterruptible)

      const observe = Effect.fn("ServerLifecycle.observe")(function* (
        node_id: string,
        view: DaemonServer,
        sequence: number
      ) {
        if (view.unsent_reports > 0) return false
        let isTaken = true
        const by = (record: ServerRecord) => {
          isTaken = record.last_sequence === sequence || record.node_id !== node_id
          return isTaken && record.node_id === node_id ? onSnapshot(record, view) : {}
        }
        const changed = yield* onRecord(view.id, (record) =>
          record === undefined ? Effect.succeed(undefined) : decide(record, by)
        )
        if (changed !== undefined && !changesNothing(changed.outcome)) {
          yield* Effect.logInfo(`${view.id} taken over from its node: ${view.status}, ${view.install.phase}`)
        }
        yield* logChange(changed)
        return isTaken
      }, Effect.uninterruptible)

      const missing = Effect.fn("ServerLifecycle.missing")(function* (node_id: string, id: string) {
        const changed = yield* write(
          Effect.tap(
            change(id, (record) => (record.node_id === node_id ? onMissing(record) : {})),
            (it) =>
              it?.outcome.install === undefined
                ? Effect.void
                : servers.set(id, { last_sequence: it.record.last_sequence + LOSS_GAP })
          )
        )
        if (changed !== undefined) {
          const { record, outcome } = changed
          const what = outcome.destroys === true ? "it is gone" : "it is installed again, empty"
          yield* Effect.logWarning(`node ${record.node_id} does not have ${id}: ${what}`)
        }
        yield* logChange(changed)
      }, Effect.uninterruptible)

      const refuseInstall = Effect.fn("ServerLifecycle.refuseInstall")(function* (
        id: string,
        reason: string
      ) {
        const finished_at = new Date(yield* Clock.currentTimeMillis).toISOString()
        yield* Effect.logWarning(`${id} cannot be installed: ${reason}`)
        yield* write(
          change(id, (record) =>
            isFinished(record.install)
              ? {}
              : onInstallRefused(record, { phase: "failed", finished_at, failure_reason: reason })
          )
        )
      })

      const reinstall = Effect.fn("ServerLifecycle.reinstall")(function* (id: string) {
        return yield* store.write(
          Effect.gen(function* () {
            const record = Option.getOrUndefined(yield* servers.lock(id))
            if (record === undefined) return yield* Effect.fail(NotFound.server(id))
            if (record.status !== "offline") return yield* Effect.fail(notOffline(record))
            if (isUnderway(Option.getOrUndefined(yield* migrationRepo.find(id))))
              return yield* Effect.fail(isMoving(id))
            yield* carryOut(record, { install: pendingInstall, status: "installing" })
            return record
          })
        )
      })

      const undoReinstall = Effect.fn("ServerLifecycle.undoReinstall")(function* (before: ServerRecord) {
        yield* write(
          change(before.id, (record) =>
            record.install.phase === "pending"
              ? {
                  install: before.install,
                  ...(record.status === "installing" ? { status: before.status } : {})
                }
              : {}
          )
        )
      })

      const sequences = Effect.fn("ServerLifecycle.sequences")(function* (
        node_id: string,
        ids: ReadonlyArray<string>
      ) {
        const rows = yield* store.read(servers.find(ids))
        return new Map(
          rows.filter((row) => row.node_id === node_id).map((row) => [row.id, row.last_sequence])
        )
      })

      return ServerLifecycle.of({
        report,
        observe,
        missing,
        nodeLost: (node_id, ids) => changeAway(node_id, ids, onNodeLost),
        nodeGivenUp: (node_id, ids) =>
          changeAway(node_id, ids, (record) => (record.definition.save ? {} : { destroys: true })),
        markForVerification: (ids) =>
          inBatches(ids, (batch) => Effect.forEach(batch, (id) => mark(id), { discard: true })),
        verified: (id) => Effect.asVoid(write(servers.setSuspected(id, false))),
        refuseInstall,
        forgetStart: (id) =>
          Effect.asVoid(
            write(
              Effect.gen(function* () {
                const changed = yield* change(id, (record) =>
                  record.start_pending ? { clearsStart: true } : {}
                )
                const migration = Option.getOrUndefined(yield* migrationRepo.find(id))
                if (changed !== undefined && isUnderway(migration) && migration.was_up !== false) {
                  yield* migrationRecords.save(changed.record, { ...migration, was_up: false })
                }
              })
            )
          ),
        reinstall,
        undoReinstall,
        beginRemoval: (id) =>
          write(
            Effect.gen(function* () {
              const record = yield* servers.lock(id)
              if (Option.isSome(record)) yield* servers.setRemoving(id, true)
              return record
            })
          ),
        giveUpRemoval: (id) => write(servers.setRemoving(id, false)),
        remove: (id, from) =>
          Effect.map(write(change(id, () => ({ destroys: true }), from)), (changed) => changed !== undefined),
        sequences
      })
    })
  )
}

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
 * How far the sequence goes on where a node has lost a server and makes it anew: past every report of what was lost, so
 * that one that comes late says nothing, and whoever has removed it knows that the new one was asked for later.
 */
const LOSS_GAP = 1_000
/**
 * How far one report takes the sequence at most. A node whose sequences leap must not use up those of the nodes that have
 * the server later.
 */
const LARGEST_STEP = 1_000_000
/** Servers of one write when many change at once. */
const BATCH = 100

/**
 * Every change of a server's record after its creation: each one write, together with the journal entries that
 * tell of it. What a server that is destroyed leaves on its node is noted in the same write, to be deleted there.
 */
export class ServerLifecycle extends Context.Service<
  ServerLifecycle,
  {
    /**
     * Applies a report of a node. Repetitions and servers that the node does not own change nothing; what the node has to
     * delete of those it is told again. False: it is not known why the node has such a server.
     */
    report(node_id: string, report: Report): Effect.Effect<boolean, Unavailable>
    /**
     * Takes over what a node has, unless reports will still say it, or a report that was applied after the
     * record had `sequence` may be newer: false.
     */
    observe(node_id: string, view: DaemonServer, sequence: number): Effect.Effect<boolean, Unavailable>
    /** The node has no such server. */
    missing(node_id: string, id: string): Effect.Effect<void, Unavailable>
    /** Sets the servers of a lost node to `unknown`, unless the node is connected again. */
    nodeLost(node_id: string, ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** Deletes the servers of a node that is given up, except saved ones, unless the node is connected again. */
    nodeGivenUp(node_id: string, ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** There is reason to think that their nodes have lost them: the nodes are to be asked. */
    markForVerification(ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** The node was asked. */
    verified(id: string): Effect.Effect<void, Unavailable>
    /** The node refuses for good to install it. */
    refuseInstall(id: string, reason: string): Effect.Effect<void, Unavailable>
    /** Is not to be started any more once installed, or once it has moved. */
    forgetStart(id: string): Effect.Effect<void, Unavailable>
    /** To be installed anew; answers the record as it was. @error Conflict it is not offline */
    reinstall(id: string): Effect.Effect<ServerRecord, NotFound | Conflict | Unavailable>
    /** Undoes {@link reinstall}, unless the node has said since that it installs. */
    undoReinstall(before: ServerRecord): Effect.Effect<void, Unavailable>
    /** Its node is about to be told to remove it; after a crash the removal goes on. Answers the record. */
    beginRemoval(id: string): Effect.Effect<Option.Option<ServerRecord>, Unavailable>
    /** The node has refused; it stays. */
    giveUpRemoval(id: string): Effect.Effect<void, Unavailable>
    /**
     * Removes the record; false when there is none.
     *
     * @param from the node that has removed it; where it is on another, or that is not known, its node is told to
     */
    remove(id: string, from?: string): Effect.Effect<boolean, Unavailable>
    /** `last_sequence` of the servers that a node owns, by id. */
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

      /** For servers of a node that is not connected: by now it may be, or they may be elsewhere. */
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
            // The node that it comes from says nothing that matters any more; it keeps the files until they are there.
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

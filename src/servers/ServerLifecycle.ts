import { Array as Arr, Clock, Context, Effect, Layer, Option } from "effect"
import type { SqlError } from "effect/sql"
import { type Conflict, NotFound, type Unavailable } from "../domain/errors.ts"
import { pendingInstall } from "../domain/InstallState.ts"
import type { Change } from "../domain/Journal.ts"
import { isUnderway } from "../domain/Move.ts"
import type { DaemonServer, Report } from "../domain/NodeMessages.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { MoveRepo } from "../store/MoveRepo.ts"
import { RoomRepo } from "../store/RoomRepo.ts"
import { ServerRepo } from "../store/ServerRepo.ts"
import { Store, Transaction } from "../store/Store.ts"
import { makeMoveRecords } from "./moveRecords.ts"
import {
  isFinished,
  isNothing,
  type Outcome,
  ofLoss,
  ofRefusedInstall,
  ofReport,
  ofSilence,
  ofView
} from "./outcome.ts"
import { isMoving, notOffline } from "./power.ts"

/**
 * How far the sequence goes on where a node has lost a server and makes it anew: past every report of what was lost, so
 * that one that comes late says nothing, and whoever has removed it knows that the new one was asked for later.
 */
const LOSS_GAP = 1_000
/** Servers of one write when many change at once. */
const BATCH = 100

/**
 * Every change of a server's record after its creation: each one write, together with the journal entries that
 * tell of it. What a server that is destroyed leaves on its node is noted in the same write, to be deleted there.
 */
export class ServerLifecycle extends Context.Service<
  ServerLifecycle,
  {
    /** Applies a report of a node. Repetitions and servers that the node does not own change nothing. */
    report(node_id: string, report: Report): Effect.Effect<void, Unavailable>
    /**
     * Takes over what a node has, unless reports will still say it, or a report that was applied after the
     * record had `sequence` may be newer.
     */
    observe(node_id: string, view: DaemonServer, sequence: number): Effect.Effect<void, Unavailable>
    /** The node has no such server. */
    missing(node_id: string, id: string): Effect.Effect<void, Unavailable>
    /** The node is silent: its servers are `unknown`, unless it is connected again. */
    silent(node_id: string, ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** The node is lost: its servers that are not saved go, unless it is connected again. */
    giveUp(node_id: string, ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** There is reason to think that their nodes have lost them: the nodes are to be asked. */
    suspect(ids: ReadonlyArray<string>): Effect.Effect<void, Unavailable>
    /** The node was asked. */
    cleared(id: string): Effect.Effect<void, Unavailable>
    /** The node refuses for good to install it. */
    refuseInstall(id: string, reason: string): Effect.Effect<void, Unavailable>
    /** Is not to be started any more once installed, or once it has moved. */
    forgetStart(id: string): Effect.Effect<void, Unavailable>
    /** To be installed anew; answers the record as it was. @error Conflict it is not offline */
    reinstall(id: string): Effect.Effect<ServerRecord, NotFound | Conflict | Unavailable>
    /** Undoes {@link reinstall}, unless the node has said something since. */
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
      const rooms = yield* RoomRepo
      const moveRepo = yield* MoveRepo
      const moveRecords = yield* makeMoveRecords

      const write = <A>(mutation: Effect.Effect<A, SqlError.SqlError, Transaction>) => store.write(mutation)

      /** Writes what has been decided; the order of the entries is the order in which it happened. */
      const carryOut = Effect.fnUntraced(function* (
        record: ServerRecord,
        decided: Outcome,
        { removedFrom, sequence }: { readonly removedFrom?: string; readonly sequence?: number } = {}
      ) {
        const outcome = yield* moveRecords.settle(record, decided)
        const transaction = yield* Transaction
        const append = (change: Change) => transaction.append(change, record.blueprint_id)
        const server_id = record.id
        if (outcome.destroys !== true) {
          yield* servers.set(server_id, {
            ...(outcome.install === undefined ? {} : { install: outcome.install }),
            ...(outcome.status === undefined ? {} : { status: outcome.status }),
            ...(outcome.clearsStart === true ? { start_pending: false } : {}),
            // One that was put back to its old node has the sequence that it had there.
            ...(sequence === undefined || outcome !== decided ? {} : { last_sequence: sequence })
          })
        }
        if (outcome.install !== undefined) {
          yield* append({ topic: "server:install", server_id, payload: outcome.install })
        }
        if (outcome.crash !== undefined) yield* append({ topic: "crash", server_id, payload: outcome.crash })
        if (outcome.status !== undefined) {
          yield* append({ topic: "status", server_id, payload: outcome.status })
        }
        if (outcome.clearsStart === true) {
          yield* append({ topic: "server:start-pending", server_id, payload: false })
        }
        if (outcome.destroys === true) {
          if (record.node_id !== removedFrom) yield* moveRecords.leave(record, record.node_id)
          yield* servers.remove(server_id)
          yield* append({ topic: "deleted", server_id, payload: null })
        }
      })

      /** Decides about the locked record and carries it out; nothing when there is none. */
      const change = Effect.fnUntraced(function* (
        id: string,
        decide: (record: ServerRecord) => Outcome,
        removedFrom?: string
      ) {
        const record = Option.getOrUndefined(yield* servers.lock(id))
        if (record === undefined) return undefined
        const outcome = decide(record)
        yield* carryOut(record, outcome, removedFrom === undefined ? {} : { removedFrom })
        return { record, outcome }
      })

      const inBatches = (
        ids: ReadonlyArray<string>,
        mutation: (batch: ReadonlyArray<string>) => Effect.Effect<void, SqlError.SqlError, Transaction>
      ) => Effect.forEach(Arr.chunksOf(ids, BATCH), (batch) => write(mutation(batch)), { discard: true })

      /** For servers of a node that is not connected: by now it may be, or they may be elsewhere. */
      const changeAway = (
        node_id: string,
        ids: ReadonlyArray<string>,
        decide: (record: ServerRecord) => Outcome
      ): Effect.Effect<void, Unavailable> =>
        inBatches(
          ids,
          Effect.fnUntraced(function* (batch) {
            if (yield* rooms.isConnected(node_id)) return
            for (const id of batch) {
              yield* change(id, (record) => (record.node_id === node_id ? decide(record) : {}))
            }
          })
        )

      /** What follows a committed change: a line in the log. */
      const after = Effect.fnUntraced(function* (
        changed: { readonly record: ServerRecord; readonly outcome: Outcome } | undefined
      ) {
        if (changed === undefined) return
        const { record, outcome } = changed
        if (outcome.install?.phase === "failed") {
          yield* Effect.logWarning(`${record.id}: installation failed: ${outcome.install.failure_reason}`)
        }
        if (outcome.crash !== undefined)
          yield* Effect.logWarning(`${record.id}: crash: ${outcome.crash.reason}`)
        if (outcome.status !== undefined) yield* Effect.logInfo(`${record.id}: ${outcome.status}`)
        if (outcome.destroys === true) {
          yield* Effect.logInfo(`${record.id}: deleted`)
        }
        if (outcome.surprising === true) {
          yield* Effect.logWarning(
            `node ${record.node_id} says ${outcome.status ?? "unknown"} of ${record.id}, which was ${record.status}`
          )
        }
      })

      const report = Effect.fn("ServerLifecycle.report")(function* (node_id: string, message: Report) {
        const id = message.server_id
        const mutation = Effect.gen(function* () {
          const record = Option.getOrUndefined(yield* servers.lock(id))
          if (record === undefined) return yield* moveRecords.leave({ id, blueprint_id: "" }, node_id)
          if (record.node_id !== node_id) {
            // The node that it comes from says nothing that matters any more; it keeps the files until they are there.
            const move = Option.getOrUndefined(yield* moveRepo.find(record.id))
            return move?.from_node === node_id ? undefined : yield* moveRecords.leave(record, node_id)
          }
          if (message.sequence <= record.last_sequence) return undefined
          const outcome = ofReport(record, message)
          yield* carryOut(record, outcome, { sequence: message.sequence })
          return { record, outcome }
        })
        yield* after((yield* write(mutation)) ?? undefined)
      }, Effect.uninterruptible)

      const observe = Effect.fn("ServerLifecycle.observe")(function* (
        node_id: string,
        view: DaemonServer,
        sequence: number
      ) {
        if (view.unsent_reports > 0) return
        const changed = yield* write(
          change(view.id, (record) =>
            record.last_sequence === sequence && record.node_id === node_id ? ofView(record, view) : {}
          )
        )
        if (changed !== undefined && !isNothing(changed.outcome)) {
          yield* Effect.logInfo(`${view.id} taken over from its node: ${view.status}, ${view.install.phase}`)
        }
        yield* after(changed)
      }, Effect.uninterruptible)

      const missing = Effect.fn("ServerLifecycle.missing")(function* (node_id: string, id: string) {
        const changed = yield* write(
          Effect.tap(
            change(id, (record) => (record.node_id === node_id ? ofLoss(record) : {})),
            (it) =>
              it?.outcome.install === undefined
                ? Effect.void
                : servers.set(id, { last_sequence: it.record.last_sequence + LOSS_GAP })
          )
        )
        if (changed !== undefined) {
          const { record, outcome } = changed
          const what = outcome.destroys === true ? "it is gone" : "it is installed again, its files are lost"
          yield* Effect.logWarning(`node ${record.node_id} does not have ${id}: ${what}`)
        }
        yield* after(changed)
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
              : ofRefusedInstall(record, { phase: "failed", finished_at, failure_reason: reason })
          )
        )
      })

      const reinstall = Effect.fn("ServerLifecycle.reinstall")(function* (id: string) {
        return yield* store.write(
          Effect.gen(function* () {
            const record = Option.getOrUndefined(yield* servers.lock(id))
            if (record === undefined) return yield* Effect.fail(NotFound.server(id))
            if (record.status !== "offline") return yield* Effect.fail(notOffline(record))
            if (isUnderway(Option.getOrUndefined(yield* moveRepo.find(id))))
              return yield* Effect.fail(isMoving(id))
            yield* carryOut(record, { install: pendingInstall, status: "installing" })
            return record
          })
        )
      })

      const undoReinstall = Effect.fn("ServerLifecycle.undoReinstall")(function* (before: ServerRecord) {
        yield* write(
          change(before.id, (record) =>
            record.last_sequence === before.last_sequence && record.install.phase === "pending"
              ? { install: before.install, status: before.status }
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
        silent: (node_id, ids) => changeAway(node_id, ids, ofSilence),
        giveUp: (node_id, ids) =>
          changeAway(node_id, ids, (record) => (record.definition.save ? {} : { destroys: true })),
        suspect: (ids) =>
          inBatches(
            ids,
            Effect.fnUntraced(function* (batch) {
              const transaction = yield* Transaction
              for (const server_id of batch) {
                if (!(yield* servers.setSuspected(server_id, true))) continue
                yield* transaction.append({ topic: "server:suspect", server_id, payload: null }, "")
              }
            })
          ),
        cleared: (id) => Effect.asVoid(write(servers.setSuspected(id, false))),
        refuseInstall,
        forgetStart: (id) =>
          Effect.asVoid(
            write(
              Effect.gen(function* () {
                const changed = yield* change(id, (record) =>
                  record.start_pending ? { clearsStart: true } : {}
                )
                const move = Option.getOrUndefined(yield* moveRepo.find(id))
                if (changed !== undefined && isUnderway(move) && move.was_up !== false) {
                  yield* moveRecords.save(changed.record, { ...move, was_up: false })
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

import { Effect, Option } from "effect"
import type { Migration } from "../../../contract/domain/Drain.ts"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import type { Change } from "../../../contract/domain/Journal.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import type { ServerFields } from "../../store/repos/serverRows.ts"
import { append, Store, Transaction } from "../../store/Store.ts"
import type { Read, Write } from "../../store/sql/Transaction.ts"
import { makeArrivals } from "./migrationRecords.ts"
import { crashRecord, makeEndRecord } from "./removal.ts"
import type { Transition } from "./transitions.ts"

/** Marks a server for verification by the leader, as its node may have lost it; part of a write. */
export const makeMarkForVerification = Effect.map(ServerRepo, (servers) =>
  Effect.fnUntraced(function* (server_id: ServerId) {
    if (!(yield* servers.setSuspected(server_id, true))) return
    yield* append({ topic: "server:suspect", server_id, payload: null })
  })
)

export interface Changed {
  readonly record: ServerRecord
  readonly outcome: Transition
}

type ReportedFields = Omit<ServerFields, "name" | "expires_at" | "labels">

/** One decision on each of some servers, within a write. */
export interface Turn {
  /** Sets fields of a record, at the latest at the end of the turn. */
  set(id: ServerId, fields: ReportedFields): Write
  migrationOf(id: ServerId): Read<Migration | undefined>
}

/** Runs the decisions on several servers in one write, with shared statements. */
const makeTurns = Effect.gen(function* () {
  const servers = yield* ServerRepo
  const store = yield* Store
  const migrations = yield* MigrationRepo

  /**
   * Runs a turn of several servers with shared statements, from the records `before` of earlier turns.
   * @returns the records of servers whose fields alone have changed
   */
  const together = Effect.fnUntraced(function* (
    ids: ReadonlyArray<ServerId>,
    before: ReadonlyMap<ServerId, ServerRecord>,
    decideAll: (records: ReadonlyMap<ServerId, ServerRecord>, turn: Turn) => Write
  ) {
    const changes: Array<readonly [ServerId, ReportedFields]> = []
    let moves: ReadonlyMap<ServerId, Migration> | undefined
    const read = yield* servers.lockAll(ids.filter((id) => !before.has(id)))
    const records = new Map([...before, ...read])
    yield* decideAll(records, {
      set: (id, fields) => Effect.sync(() => void changes.push([id, fields])),
      migrationOf: Effect.fnUntraced(function* (id) {
        moves ??= yield* migrations.findAll(ids)
        return moves.get(id)
      })
    })
    yield* servers.setAll(changes)
    const updated_at = yield* nowText
    const after = new Map<ServerId, ServerRecord>()
    for (const [id, fields] of changes) {
      const record = records.get(id)
      // The end of a migration changes more than its fields.
      if (record !== undefined && moves?.has(id) !== true) after.set(id, { ...record, ...fields, updated_at })
    }
    return after
  })

  const workAll = Effect.fnUntraced(function* (requests: ReadonlyArray<ReadonlyArray<RecordWork>>) {
    const byServer = [...Map.groupBy(requests.flat(), ({ id }) => id).values()]
    let known: ReadonlyMap<ServerId, ServerRecord> = new Map()
    for (let turn = 0; ; turn++) {
      const works = byServer.flatMap((own) => own[turn] ?? [])
      if (works.length === 0) return requests.map(() => undefined)
      known = yield* together(
        works.map(({ id }) => id),
        known,
        (records, turn) =>
          Effect.forEach(works, ({ id, work }) => work(records.get(id), turn), { discard: true })
      )
    }
  })
  const workTogether = store.together(workAll)

  /**
   * Makes one write about several servers. Concurrent writes share a transaction without savepoints, and decisions on
   * one server are made one after another.
   */
  const onRecords = <A>(
    decisions: ReadonlyArray<{ readonly id: ServerId; readonly decideOn: Decide<A> }>
  ): Effect.Effect<ReadonlyArray<A>, Unavailable> =>
    Effect.suspend(() => {
      const answers = decisions.map((): Option.Option<A> => Option.none())
      const works = decisions.map(({ decideOn, id }, at) => ({
        id,
        work: (record: ServerRecord | undefined, turn: Turn) =>
          Effect.map(decideOn(record, turn), (decided) => {
            answers[at] = Option.some(decided)
          })
      }))
      return Effect.flatMap(workTogether(works), () => Effect.orDie(Effect.fromOption(Option.all(answers))))
    })

  return { onRecords, together }
})

/** Applies transitions to records, within a write, with their journal entries. */
export const makeRecordChanges = Effect.gen(function* () {
  const servers = yield* ServerRepo
  const migrations = yield* MigrationRepo
  const { onRecords, together } = yield* makeTurns
  const { deleteOn, settle } = yield* makeArrivals
  const crashes = yield* CrashRepo
  const endRecord = yield* makeEndRecord

  const alone: Turn = {
    set: servers.set,
    migrationOf: migrations.find
  }

  /** Applies a transition, with journal entries in the order of the events. */
  const carryOut = Effect.fnUntraced(function* (
    record: ServerRecord,
    decided: Transition,
    { removedFrom, sequence, turn = alone }: CarryOutOptions = {}
  ) {
    const { isBack, outcome } = yield* settle(record, decided, turn.migrationOf)
    const transaction = yield* Transaction
    const add = (change: Change) => transaction.append(change, record)
    const server_id = record.id
    const { clearsStart, crash, destroys, details, keeps, surprising: _, transient, via, ...fields } = outcome
    const { install, problem, redefinition, restart, run, status } = fields
    if (destroys === undefined) {
      yield* turn.set(server_id, {
        ...fields,
        ...(clearsStart === true ? { start_pending: false } : {}),
        ...(sequence === undefined || isBack ? {} : { last_sequence: sequence })
      })
    }
    if (install !== undefined) yield* add({ topic: "server:install", server_id, payload: install })
    if (redefinition !== undefined) {
      yield* servers.reserve(record, { ...record, redefinition })
      yield* add({ topic: "server:changed", server_id, payload: null })
    }
    if (crash !== undefined) {
      const { lines, ...summary } = crashRecord(record, crash, details)
      yield* crashes.add({ ...summary, lines })
      yield* add({ topic: "crash", server_id, payload: crash })
      yield* add({ topic: "server:crash-recorded", server_id, payload: summary })
    }
    // Before the status, so that a caller who waits for `offline` sees both.
    if (restart !== undefined) yield* add({ topic: "server:restart", server_id, payload: restart })
    if (run !== undefined) yield* add({ topic: "server:run", server_id, payload: run })
    if (problem !== undefined) yield* add({ topic: "server:problem", server_id, payload: problem })
    if (via !== undefined) yield* add({ topic: "status", server_id, payload: via })
    if (transient !== undefined) yield* add({ topic: "server:transient", server_id, payload: transient })
    if (status !== undefined) yield* add({ topic: "status", server_id, payload: status })
    if (clearsStart === true) yield* add({ topic: "server:start-pending", server_id, payload: false })
    if (destroys !== undefined) {
      if (keeps !== true && record.node_id !== removedFrom) yield* deleteOn(record, record.node_id)
      yield* endRecord(record, destroys, keeps)
      yield* add({ topic: "deleted", server_id, payload: null })
    }
  })

  const decide = Effect.fnUntraced(function* (
    record: ServerRecord,
    by: (record: ServerRecord) => Transition,
    options: CarryOutOptions
  ) {
    const outcome = by(record)
    yield* carryOut(record, outcome, options)
    return { record, outcome } satisfies Changed
  })

  /** Decides on a transition of the present record, if there is one, and applies it. */
  const change = Effect.fnUntraced(function* (
    id: ServerId,
    by: (record: ServerRecord) => Transition,
    removedFrom?: string
  ) {
    const record = yield* servers.lock(id)
    return record === undefined
      ? undefined
      : yield* decide(record, by, removedFrom === undefined ? {} : { removedFrom })
  })

  const changeAll = (ids: ReadonlyArray<ServerId>, by: (record: ServerRecord) => Transition) =>
    together(ids, new Map(), (records, turn) =>
      Effect.forEach(records.values(), (record) => decide(record, by, { turn }), { discard: true })
    )

  return { carryOut, change, changeAll, decide, onRecords } as const
})

export type RecordChanges = Effect.Success<typeof makeRecordChanges>

type Decide<A> = (record: ServerRecord | undefined, turn: Turn) => Write<A>

interface CarryOutOptions {
  readonly removedFrom?: string
  readonly sequence?: number
  readonly turn?: Turn
}

interface RecordWork {
  readonly id: ServerId
  readonly work: Decide<void>
}

export const logFields = ({ id, node_id }: Pick<ServerRecord, "id" | "node_id">) => ({
  server_id: id,
  node_id
})

const logLines = Effect.fnUntraced(function* ({ outcome, record }: Changed) {
  const { crash, destroys, install, status, surprising } = outcome
  if (install?.phase === "failed") yield* Effect.logWarning(`installation failed: ${install.failure_reason}`)
  if (crash !== undefined) yield* Effect.logWarning(`server crashed: ${crash.reason}`)
  if (status !== undefined) yield* Effect.logInfo(`server ${status}`)
  if (destroys !== undefined) yield* Effect.logInfo(`server deleted: ${destroys}`)
  if (surprising === true) {
    yield* Effect.logWarning(`the node reports ${status ?? "unknown"} of a server that was ${record.status}`)
  }
})

export const logChange = (changed: Changed | undefined) =>
  changed === undefined ? Effect.void : Effect.annotateLogs(logLines(changed), logFields(changed.record))

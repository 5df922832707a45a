/**
 * Operations: tasks of servers that may last longer than a request (spec 11). `Operations` begins, shows and cancels them,
 * `OperationLeader` does the work with the runner of each kind. Begin with `Operations`, `OperationRunners`, `http`.
 */
import { Context, Effect, Layer, type Schema } from "effect"
import type { SqlError } from "effect/sql"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, NotFound, Unavailable } from "../../contract/domain/errors.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import {
  hasEnded,
  isExclusive,
  OperationKind,
  type OperationRecord,
  rightsOfKind,
  shownOperation
} from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { CurrentPrincipal, operationsOf, requireRight } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"
import { wantedPage } from "../servers/list/listQuery.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { busy } from "../servers/state/conflicts.ts"
import { newOperation, type OperationPage, OperationRepo } from "../store/repos/OperationRepo.ts"
import { Store, type Transaction } from "../store/Store.ts"
import { OperationLeader } from "./OperationLeader.ts"
import { OperationRunners } from "./OperationRunners.ts"

/**
 * Most unfinished operations: of a server, of a server by one key other than `AppAdmin`, of all servers by such a key, and
 * in total.
 */
const MOST_OF_SERVER = 16
const MOST_OF_KEY = 8
const MOST_OF_KEY_IN_ALL = 200
const MOST = 1_000

/** Milliseconds after which a refused caller may try again. */
const RETRY_AFTER = 5_000

/** Rows that are read at a time for a caller that does not see all of them. */
const ROWS = 500

const tooMany = ({ id }: ServerRecord, unfinished: number, whose = "") =>
  new LimitReached({
    detail: `server ${id} has ${unfinished} unfinished operations${whose}`,
    hint: `Wait for them, or cancel some: GET /api/operations?server_id=${id} lists them.`,
    limit: whose === "" ? MOST_OF_SERVER : MOST_OF_KEY,
    resetAfter: RETRY_AFTER
  })

const tooManyOfKey = (unfinished: number) =>
  new LimitReached({
    detail: `this key has ${unfinished} unfinished operations`,
    hint: "Wait for them, or cancel some: GET /api/operations?state=queued lists those that have not begun.",
    limit: MOST_OF_KEY_IN_ALL,
    resetAfter: RETRY_AFTER
  })

const allBusy = (unfinished: number) =>
  new Unavailable({
    detail: `there are ${unfinished} unfinished operations`,
    hint: "Try again once some have ended: GET /api/operations?state=running lists them."
  })

/** Which operations the current caller sees (spec 11.3). */
const makeVisibility = Effect.gen(function* () {
  const index = yield* ServerIndex
  return Effect.map(CurrentPrincipal, (caller) => {
    const maySee = operationsOf(caller) ?? (() => true)
    const within = caller?.restriction
    return {
      seesAll: within === undefined,
      sees: (record: OperationRecord): boolean => {
        const { created_by, server_id } = record
        const isOwn = created_by === caller?.key_id && index.get(server_id) === undefined
        const isRead = isOwn || index.isWithin(server_id, within)
        return isRead && maySee({ operation: shownOperation(record), created_by })
      },
      /** What the database can select. */
      selected: {
        ...(caller?.rights === undefined ? {} : { kinds: kindsFor(caller.rights) }),
        ...(caller?.paths === undefined ? {} : { created_by: caller.key_id })
      }
    }
  })
})

const kindsFor = (rights: ReadonlySet<string>) =>
  OperationKind.literals.filter((kind) => rights.has(rightsOfKind(kind)?.see ?? ""))

export interface BeginOptions {
  /** `running` if the caller begins the work on the node itself; default: `queued`. */
  readonly state?: "queued" | "running"
  /** Work that the same write does. */
  readonly alongside?: (
    operation: OperationRecord
  ) => Effect.Effect<void, LimitReached | SqlError.SqlError, Transaction>
}

export class Operations extends Context.Service<Operations>()("muster/operations/Operations", {
  make: Effect.gen(function* () {
    const index = yield* ServerIndex
    const repo = yield* OperationRepo
    const store = yield* Store
    const visibility = yield* makeVisibility

    const find = Effect.fn("Operations.find")(function* (id: string) {
      const { sees } = yield* visibility
      const record = yield* store.read(repo.find(id))
      return record === undefined || !sees(record) ? yield* NotFound.operation(id) : record
    })

    const begin = Effect.fn("Operations.begin")(function* (
      kind: OperationKind,
      server: ServerRecord,
      request: Schema.Json,
      { alongside = () => Effect.void, state = "queued" }: BeginOptions = {}
    ) {
      const caller = yield* CurrentPrincipal
      const created_by = caller?.key_id ?? null
      const isBounded = caller !== undefined && caller.scope !== "AppAdmin"
      const created_at = yield* nowText
      const record = newOperation({ kind, server_id: server.id, request, created_by, created_at }, state)
      const insert = Effect.gen(function* () {
        const { by_key, of_key, own, total } = yield* repo.counts(server.id, created_by)
        if (own >= MOST_OF_SERVER) return yield* tooMany(server, own)
        // A key that holds transfers open leaves room for the backups of others.
        if (isBounded && by_key >= MOST_OF_KEY) return yield* tooMany(server, by_key, " of this key")
        if (isBounded && of_key >= MOST_OF_KEY_IN_ALL) return yield* tooManyOfKey(of_key)
        if (total >= MOST) return yield* allBusy(total)
        const other = isExclusive(kind) ? yield* repo.exclusiveOf(server.id) : undefined
        if (other !== undefined) return yield* busy(other)
        yield* repo.insert(record, server)
        yield* alongside(record)
      })
      yield* store.write(insert)
      const log = Effect.logInfo(`operation begun: ${kind}`)
      yield* Effect.annotateLogs(log, { operation_id: record.id, server_id: server.id })
      return record
    })

    const list = Effect.fn("Operations.list")(function* (query: OperationPage) {
      const { sees, seesAll, selected } = yield* visibility
      const rows = seesAll ? query.limit + 1 : ROWS
      return yield* wantedPage(
        { ...query, noun: "operation", rows },
        (page) => store.read(repo.list({ ...query, ...selected, ...page })),
        sees
      )
    })

    const cancel = Effect.fn("Operations.cancel")(function* (id: string) {
      const { kind, server_id } = yield* find(id)
      const right = rightsOfKind(kind)?.begin
      if (right !== undefined) yield* requireRight(right)
      yield* describeAudit({ id })
      const finished_at = yield* nowText
      const reason = "a caller has cancelled it"
      const facts = index.factsOf(server_id)
      const change = Effect.gen(function* () {
        const before = yield* repo.find(id)
        if (before === undefined) return yield* NotFound.operation(id)
        if (hasEnded(before.state)) return yield* notCancellable(before)
        const after =
          before.state === "queued"
            ? repo.end(id, { state: "cancelled", reason, finished_at }, facts)
            : repo.askToCancel(id, reason, facts)
        return (yield* after) ?? before
      })
      return yield* store.write(change)
    })

    /** Waits until an operation has ended, and returns it; nothing if it was removed meanwhile. */
    const ended = Effect.fn("Operations.ended")(function* ({
      id,
      server_id
    }: Pick<OperationRecord, "id" | "server_id">) {
      const changed = yield* index.changeOf(server_id)
      while (true) {
        changed.closeUnsafe()
        const record = yield* store.read(repo.find(id))
        if (record === undefined || hasEnded(record.state)) return record
        yield* changed.await
      }
    }, Effect.scoped)

    return {
      /**
       * Stores an operation of a server for the leader. The route has checked the rights of the caller.
       * @param request what the runner of the kind needs
       * @error Conflict     another operation has the server for itself, as this one would (spec 12.4)
       * @error LimitReached the server has 16 unfinished operations, or 8 of this key, or the key has 200 in all (429)
       * @error Unavailable  there are 1,000 unfinished operations
       */
      begin,
      /** @error NotFound there is no such operation, or the caller does not see it */
      find,
      /** Returns operations, newest first. `next` is the last id of the page, unless it is the last page. */
      list,
      /**
       * Ends a queued operation, and asks the leader to cancel a running one.
       * @error NotFound  as of `find`
       * @error Forbidden the key lacks the right that begins such an operation
       * @error Conflict  it has ended
       */
      cancel,
      ended
    }
  })
}) {
  static readonly layer = Layer.effect(Operations, Operations.make)
}

const notCancellable = ({ id, state }: OperationRecord) =>
  new Conflict({
    detail: `operation is ${state}: ${id}`,
    hint: "An operation that has ended cannot be cancelled; GET /api/operations/:operation shows it."
  })

/** Operations with the work of the leader. `runners` registers the runners of the kinds, before the leader begins. */
export const layerOperationsWith = <E, R>(runners: Layer.Layer<never, E, R>) =>
  Layer.mergeAll(Operations.layer, OperationLeader).pipe(
    Layer.provide(runners),
    Layer.provideMerge(OperationRunners.layer)
  )

/** The rows of a server's record in the tables `servers` and `ports`. */
import { Effect, Result, Schema } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { Labels } from "../../../contract/domain/Labels.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { Overrides } from "../../../contract/domain/Overrides.ts"
import { Problem } from "../../../contract/domain/Problem.ts"
import { RestartState, RunState } from "../../../contract/domain/RunRule.ts"
import { Redefinition, ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../../contract/domain/ServerStatus.ts"
import { allocationsColumn, installColumn, makeSharedColumn, makeSharedText } from "../sql/columns.ts"
import { IntColumn, insertRows, JsonColumn, type UpdatedRow, updateRows, writeRow } from "../sql/rows.ts"
import { isUniqueViolation } from "../sql/sqlErrors.ts"
import type { Transaction, Write } from "../sql/Transaction.ts"
import { definitionRow, findDefinitions } from "./definitionRows.ts"

const { definition: _, ...ownFields } = ServerRecord.fields
/** A row whose columns of JSON that differ in most rows are texts. */
export const StoredRow = Schema.Struct({
  ...ownFields,
  allocations: Schema.String,
  overrides: Schema.NullOr(Schema.String),
  definition_hash: Schema.String,
  redefinition: Schema.NullOr(JsonColumn(Redefinition)),
  install: Schema.String,
  start_pending: Schema.Literals([0, 1]),
  restart: Schema.NullOr(JsonColumn(RestartState)),
  run: Schema.NullOr(JsonColumn(RunState)),
  problem: Schema.NullOr(JsonColumn(Problem)),
  last_sequence: IntColumn,
  name: Schema.NullOr(Schema.String),
  labels: Schema.String,
  expires_at: Schema.NullOr(Schema.String),
  created_by: Schema.NullOr(Schema.String),
  trace: Schema.NullOr(Schema.String),
  updated_at: Schema.String
})
export type StoredRow = typeof StoredRow.Type
const decodeRow = Schema.decodeUnknownResult(StoredRow)
/** Few servers differ in overrides and labels. */
const overridings = makeSharedColumn(Schema.toType(Overrides))
const labelings = makeSharedColumn(Labels)
const shared = makeSharedText()

const encodeRestart = writeRow(Schema.NullOr(JsonColumn(RestartState)))

const encodeRun = writeRow(Schema.NullOr(JsonColumn(RunState)))

const encodeProblem = writeRow(Schema.NullOr(JsonColumn(Problem)))

const encodeRedefinition = writeRow(JsonColumn(Redefinition))

export const encodeLabels = labelings.encode

const encodeInstall = installColumn.encode

export const encodeServer = Effect.fnUntraced(function* (record: ServerRecord) {
  const { overrides, redefinition } = record
  return {
    id: record.id,
    blueprint_id: record.blueprint_id,
    node_id: record.node_id,
    allocations: yield* allocationsColumn.encode(record.allocations),
    overrides: overrides === undefined ? null : yield* overridings.encode(overrides),
    definition_hash: (yield* definitionRow(record.definition)).hash,
    redefinition: redefinition === undefined ? null : yield* encodeRedefinition(redefinition),
    status: record.status,
    install: yield* encodeInstall(record.install),
    start_pending: record.start_pending ? 1 : 0,
    restart: yield* encodeRestart(record.restart ?? null),
    run: yield* encodeRun(record.run ?? null),
    problem: yield* encodeProblem(record.problem ?? null),
    last_sequence: record.last_sequence,
    created_at: record.created_at,
    name: record.name ?? null,
    labels: yield* labelings.encode(record.labels),
    expires_at: record.expires_at ?? null,
    created_by: record.created_by ?? null,
    trace: record.trace ?? null,
    updated_at: record.updated_at
  }
})

const noOverrides = Result.succeed(undefined)

/** Decodes the columns of a row; the record shares with others what they have in common. */
const toRecord = (
  row: StoredRow,
  definition: ServerDefinition
): Result.Result<ServerRecord, Schema.SchemaError> => {
  const { created_at, created_by, expires_at, name, problem, redefinition, restart, run, trace, updated_at } =
    row
  const columns = Result.all([
    allocationsColumn.decode(row.allocations),
    installColumn.decode(row.install),
    labelings.decode(row.labels),
    row.overrides === null ? noOverrides : overridings.decode(row.overrides)
  ])
  return Result.map(columns, ([allocations, install, labels, overrides]) => ({
    id: row.id,
    blueprint_id: shared(row.blueprint_id),
    node_id: shared(row.node_id),
    allocations,
    definition,
    status: shared(row.status),
    install,
    start_pending: row.start_pending === 1,
    last_sequence: row.last_sequence,
    created_at,
    updated_at: updated_at === created_at ? created_at : updated_at,
    labels,
    ...(redefinition === null ? {} : { redefinition }),
    ...(restart === null ? {} : { restart }),
    ...(run === null ? {} : { run }),
    ...(problem === null ? {} : { problem }),
    ...(name === null ? {} : { name }),
    ...(expires_at === null ? {} : { expires_at }),
    ...(created_by === null ? {} : { created_by: shared(created_by) }),
    ...(trace === null ? {} : { trace }),
    ...(overrides === undefined ? {} : { overrides })
  }))
}

type Rows = Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>

const decoded = <A>(
  results: ReadonlyArray<Result.Result<A, Schema.SchemaError>>
): Effect.Effect<ReadonlyArray<A>> => Effect.orDie(Effect.fromResult(Result.all(results)))

/** Reads of rows whose servers other processes delete or redefine each time before their definitions are read. */
const READS = 100

export const readServers = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, query: Rows) {
  for (let read = 1; read <= READS; read++) {
    const rows = yield* decoded((yield* query).map((row) => decodeRow(row)))
    const definitions = yield* findDefinitions(sql, new Set(rows.map((row) => row.definition_hash)))
    const records = rows.flatMap((row) => {
      const definition = definitions.get(row.definition_hash)
      return definition === undefined ? [] : [toRecord(row, definition)]
    })
    if (records.length === rows.length) return yield* decoded(records)
  }
  return yield* Effect.die(new Error("the definition of a server is missing"))
})

export const readServer = (sql: SqlClient.SqlClient, query: Rows) =>
  Effect.map(readServers(sql, query), ([record]) => record)

/** Returns every address and port of the record once: its mappings, and its default if they lack it. */
export const portsOf = (record: ServerRecord) => {
  const { default: main, mappings } = record.allocations
  const held = new Map<string, { readonly address: string; readonly port: number }>()
  const hold = (address: string, port: number) => held.set(`${port} ${address}`, { address, port })
  hold(main.ip, main.port)
  for (const [address, ports] of Object.entries(mappings)) {
    for (const port of ports) hold(address, port)
  }
  return Array.from(held.values(), (port) => ({ node_id: record.node_id, ...port, server_id: record.id }))
}

/** The outcome of an insertion; `port-taken`: another server has one of its ports. */
export type InsertOutcome = "inserted" | "port-taken"

/** Fails with `port-taken` if another server has one of the ports. */
export const insertPorts = (sql: SqlClient.SqlClient, ports: ReturnType<typeof portsOf>) =>
  Effect.catchIf(insertRows(sql, "ports", ports), isUniqueViolation, () => Effect.fail("port-taken" as const))

/** Runs insertions in a savepoint: a taken port undoes all of them, and nothing else. */
export const inSavepoint = (
  sql: SqlClient.SqlClient,
  insertions: Effect.Effect<unknown, SqlError.SqlError | "port-taken", Transaction>
): Write<InsertOutcome> =>
  insertions.pipe(
    Effect.as<InsertOutcome>("inserted"),
    sql.withTransaction,
    Effect.catchIf(
      (error): error is "port-taken" => error === "port-taken",
      (outcome) => Effect.succeed<InsertOutcome>(outcome)
    )
  )

/** The changing fields of a record while it is on its node. */
export type ServerFields = Partial<
  Pick<
    ServerRecord,
    | "status"
    | "install"
    | "start_pending"
    | "last_sequence"
    | "labels"
    | "restart"
    | "run"
    | "problem"
    | "redefinition"
  >
> & {
  /** Null removes it. */
  readonly name?: string | null
  readonly expires_at?: string | null
}

export type ChangedFields = readonly [ServerId, ServerFields]

const encodeFields = Effect.fnUntraced(function* ({
  install,
  labels,
  problem,
  redefinition,
  restart,
  run,
  start_pending,
  status,
  ...same
}: ServerFields) {
  return {
    ...same,
    ...(status === undefined ? {} : { status, ...(isUp(status) ? { has_run: 1 } : {}) }),
    ...(install === undefined ? {} : { install: yield* encodeInstall(install) }),
    ...(redefinition === undefined ? {} : { redefinition: yield* encodeRedefinition(redefinition) }),
    ...(restart === undefined ? {} : { restart: yield* encodeRestart(restart) }),
    ...(run === undefined ? {} : { run: yield* encodeRun(run) }),
    ...(problem === undefined ? {} : { problem: yield* encodeProblem(problem) }),
    ...(labels === undefined ? {} : { labels: yield* encodeLabels(labels) }),
    ...(start_pending === undefined ? {} : { start_pending: start_pending ? 1 : 0 })
  }
})

/** Sets fields of records, with one statement for all that have the same fields; the last of a record's field counts. */
export const setFields = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  changes: ReadonlyArray<ChangedFields>
) {
  const byId = new Map<ServerId, ServerFields>()
  for (const [id, fields] of changes) byId.set(id, { ...byId.get(id), ...fields })
  const updated_at = yield* nowText
  const byColumns = new Map<string, Array<UpdatedRow>>()
  for (const [id, fields] of byId) {
    const values = yield* encodeFields(fields)
    const columns = Object.keys(values).join()
    if (columns === "") continue
    const rows = byColumns.get(columns) ?? []
    byColumns.set(columns, rows)
    rows.push({ id, ...values, updated_at })
  }
  for (const rows of byColumns.values()) yield* updateRows(sql, "servers", rows)
})

/** The rows of a server's record in the tables `servers` and `ports`. */
import { Effect, Option, Predicate, Result, Schema } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Labels } from "../../../contract/domain/Labels.ts"
import { Overrides } from "../../../contract/domain/Overrides.ts"
import { Problem } from "../../../contract/domain/Problem.ts"
import { RestartState, RunState } from "../../../contract/domain/Run.ts"
import { Redefinition, ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { ServerStatus } from "../../../contract/domain/ServerStatus.ts"
import { allocationsColumn, installColumn } from "../sql/plainColumns.ts"
import { IntColumn, JsonColumn, writeRow } from "../sql/rows.ts"
import { makeSharedColumn, makeSharedText } from "../sql/sharedColumn.ts"
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

export const encodeRestart = writeRow(Schema.NullOr(JsonColumn(RestartState)))

export const encodeRun = writeRow(Schema.NullOr(JsonColumn(RunState)))

export const encodeProblem = writeRow(Schema.NullOr(JsonColumn(Problem)))

export const encodeRedefinition = writeRow(JsonColumn(Redefinition))

export const encodeLabels = labelings.encode

export const encodeInstall = installColumn.encode

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
    restart: record.restart == null ? null : yield* encodeRestart(record.restart),
    run: record.run == null ? null : yield* encodeRun(record.run),
    problem: record.problem == null ? null : yield* encodeProblem(record.problem),
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

const statuses: ReadonlySet<unknown> = new Set(ServerStatus.literals)
const texts = [
  "id",
  "blueprint_id",
  "node_id",
  "allocations",
  "definition_hash",
  "install",
  "labels",
  "created_at",
  "updated_at"
]
const optionalTexts = ["overrides", "name", "expires_at", "created_by", "trace"]

/** Decodes a row. The usual values of SQLite need no schema: they are what the schema would decode them to. */
export const readRow = (row: unknown): Result.Result<StoredRow, Schema.SchemaError> => {
  if (!Predicate.isObject(row)) return decodeRow(row)
  const fields: Readonly<Record<string, unknown>> = row
  const { last_sequence, problem, redefinition, restart, run, start_pending, status } = fields
  const isPlain =
    texts.every((name) => typeof fields[name] === "string") &&
    optionalTexts.every((name) => fields[name] === null || typeof fields[name] === "string") &&
    statuses.has(status) &&
    Number.isSafeInteger(last_sequence) &&
    redefinition === null &&
    restart === null &&
    run === null &&
    problem === null &&
    (start_pending === 0 || start_pending === 1)
  // The check is that of the schema.
  return isPlain ? Result.succeed(row as StoredRow) : decodeRow(row)
}

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

export const readServers = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  query: Rows
): Effect.fn.Return<ReadonlyArray<ServerRecord>, SqlError.SqlError> {
  for (let read = 1; read <= READS; read++) {
    const rows = yield* decoded((yield* query).map(readRow))
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
  Effect.map(readServers(sql, query), (records) => Option.fromUndefinedOr(records[0]))

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

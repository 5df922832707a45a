/** The rows of a server's record in the tables `servers` and `ports`. */
import { Effect, Option, Result, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { InstallState } from "../../domain/InstallState.ts"
import { Labels } from "../../domain/Labels.ts"
import { Overrides } from "../../domain/Overrides.ts"
import { RestartState } from "../../domain/Restart.ts"
import { Redefinition, ServerRecord } from "../../domain/Server.ts"
import { ServerDefinition } from "../../domain/ServerDefinition.ts"
import { BooleanColumn, IntColumn, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import { makeSharedColumn, makeSharedText } from "../sql/sharedColumn.ts"

const ServerRow = Schema.Struct({
  ...ServerRecord.fields,
  allocations: JsonColumn(ServerRecord.fields.allocations),
  overrides: Schema.NullOr(Schema.String),
  definition: Schema.String,
  redefinition: Schema.NullOr(JsonColumn(Redefinition)),
  install: JsonColumn(InstallState),
  start_pending: BooleanColumn,
  restart: Schema.NullOr(JsonColumn(RestartState)),
  last_sequence: IntColumn,
  name: Schema.NullOr(Schema.String),
  labels: Schema.NullOr(Schema.String),
  expires_at: Schema.NullOr(Schema.String),
  created_by: Schema.NullOr(Schema.String),
  trace: Schema.NullOr(Schema.String),
  updated_at: Schema.NullOr(Schema.String)
})
const encodeRow = writeRow(ServerRow)
const decodeRows = readRows(ServerRow)
/** Many servers have the definition of their blueprint, and few differ in overrides and labels. */
const definitions = makeSharedColumn(ServerDefinition)
const overridings = makeSharedColumn(Schema.toType(Overrides))
const labelings = makeSharedColumn(Labels)
const shared = makeSharedText()

export const encodeServer = Effect.fnUntraced(function* (record: ServerRecord) {
  const { definition, labels, overrides } = record
  return yield* encodeRow({
    ...record,
    definition: yield* definitions.encode(definition),
    overrides: overrides === undefined ? null : yield* overridings.encode(overrides),
    labels: yield* labelings.encode(labels),
    redefinition: record.redefinition ?? null,
    restart: record.restart ?? null,
    name: record.name ?? null,
    expires_at: record.expires_at ?? null,
    created_by: record.created_by ?? null,
    trace: record.trace ?? null
  })
})

export const encodeRestart = writeRow(Schema.NullOr(JsonColumn(RestartState)))

export const encodeRedefinition = writeRow(JsonColumn(Redefinition))

export const encodeLabels = labelings.encode

export const encodeInstall = writeRow(JsonColumn(InstallState))

const noLabels: Labels = {}

/** Decodes a row; the record shares with others what they have in common. */
const toRecord = ({
  created_by,
  expires_at,
  name,
  overrides,
  redefinition,
  restart,
  trace,
  ...row
}: typeof ServerRow.Type): Result.Result<ServerRecord, Schema.SchemaError> =>
  Result.gen(function* () {
    const { created_at, updated_at } = row
    return {
      ...row,
      blueprint_id: shared(row.blueprint_id),
      node_id: shared(row.node_id),
      status: shared(row.status),
      definition: yield* definitions.decode(row.definition),
      labels: row.labels === null ? noLabels : yield* labelings.decode(row.labels),
      updated_at: updated_at === null || updated_at === created_at ? created_at : updated_at,
      ...(redefinition === null ? {} : { redefinition }),
      ...(restart === null ? {} : { restart }),
      ...(name === null ? {} : { name }),
      ...(expires_at === null ? {} : { expires_at }),
      ...(created_by === null ? {} : { created_by: shared(created_by) }),
      ...(trace === null ? {} : { trace }),
      ...(overrides === null ? {} : { overrides: yield* overridings.decode(overrides) })
    }
  })

type Rows = Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>

export const readServers = (query: Rows) =>
  Effect.flatMap(decodeRows(query), (rows) => Effect.orDie(Effect.fromResult(Result.all(rows.map(toRecord)))))

export const readServer = (query: Rows) =>
  Effect.map(readServers(query), (records) => Option.fromUndefinedOr(records[0]))

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

/** The rows of a server's record in the tables `servers` and `ports`. */
import { Effect, Option, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { InstallState } from "../../domain/InstallState.ts"
import { Labels } from "../../domain/Labels.ts"
import { Overrides } from "../../domain/Overrides.ts"
import { RestartState } from "../../domain/Restart.ts"
import { Redefinition, ServerRecord } from "../../domain/Server.ts"
import { BooleanColumn, IntColumn, JsonColumn, readRows, writeRow } from "../sql/rows.ts"

const ServerRow = Schema.Struct({
  ...ServerRecord.fields,
  allocations: JsonColumn(ServerRecord.fields.allocations),
  overrides: Schema.NullOr(JsonColumn(Schema.toType(Overrides))),
  definition: JsonColumn(ServerRecord.fields.definition),
  redefinition: Schema.NullOr(JsonColumn(Redefinition)),
  install: JsonColumn(InstallState),
  start_pending: BooleanColumn,
  restart: Schema.NullOr(JsonColumn(RestartState)),
  last_sequence: IntColumn,
  name: Schema.NullOr(Schema.String),
  labels: Schema.NullOr(JsonColumn(Labels)),
  expires_at: Schema.NullOr(Schema.String),
  created_by: Schema.NullOr(Schema.String),
  trace: Schema.NullOr(Schema.String),
  updated_at: Schema.NullOr(Schema.String)
})
const encodeRow = writeRow(ServerRow)
const decodeRows = readRows(ServerRow)

export const encodeServer = (record: ServerRecord) =>
  encodeRow({
    ...record,
    overrides: record.overrides ?? null,
    redefinition: record.redefinition ?? null,
    restart: record.restart ?? null,
    name: record.name ?? null,
    expires_at: record.expires_at ?? null,
    created_by: record.created_by ?? null,
    trace: record.trace ?? null
  })

export const encodeRestart = writeRow(Schema.NullOr(JsonColumn(RestartState)))

export const encodeRedefinition = writeRow(JsonColumn(Redefinition))

export const encodeLabels = writeRow(JsonColumn(Labels))

export const encodeInstall = writeRow(JsonColumn(InstallState))

const toRecord = ({
  created_by,
  expires_at,
  name,
  overrides,
  redefinition,
  restart,
  trace,
  ...row
}: typeof ServerRow.Type): ServerRecord => ({
  ...row,
  labels: row.labels ?? {},
  updated_at: row.updated_at ?? row.created_at,
  ...(redefinition === null ? {} : { redefinition }),
  ...(restart === null ? {} : { restart }),
  ...(name === null ? {} : { name }),
  ...(expires_at === null ? {} : { expires_at }),
  ...(created_by === null ? {} : { created_by }),
  ...(trace === null ? {} : { trace }),
  ...(overrides === null ? {} : { overrides })
})

type Rows = Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>

export const readServers = (query: Rows) => Effect.map(decodeRows(query), (rows) => rows.map(toRecord))

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

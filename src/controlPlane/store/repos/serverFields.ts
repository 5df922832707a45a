/** Changes of single fields of servers' records. */
import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { type UpdatedRow, updateRows } from "../sql/insertRows.ts"
import {
  encodeInstall,
  encodeLabels,
  encodeProblem,
  encodeRedefinition,
  encodeRestart,
  encodeRun
} from "./serverRows.ts"

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
  ...same
}: ServerFields) {
  return {
    ...same,
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
): Effect.fn.Return<void, SqlError.SqlError> {
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

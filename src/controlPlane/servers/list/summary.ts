/** How a server looks to a caller (spec 3.1, 3.6). */
import { namedPorts } from "../../../contract/domain/Allocation.ts"
import type { CrashSummary } from "../../../contract/domain/CrashRecord.ts"
import { changesBetween, revisionOf } from "../../../contract/domain/compareDefinitions.ts"
import { type RunState, runRuleOf } from "../../../contract/domain/RunRule.ts"
import {
  type Includable,
  includable,
  type Server,
  type ServerRecord,
  type ServerStats
} from "../../../contract/domain/Server.ts"
import { isUp } from "../../../contract/domain/ServerStatus.ts"

/** The fields that a caller asks for, as one number for each set. */
export type Include = number

export const includeOf = (names: ReadonlyArray<Includable>): Include =>
  names.reduce((include, name) => include | (1 << includable.indexOf(name)), 0)

export const plain: Include = 0

export const has = (include: Include, name: Includable): boolean =>
  (include & (1 << includable.indexOf(name))) !== 0

export interface ListedServer extends ServerRecord {
  readonly last_crash?: CrashSummary
  /** Whether its `offline` is between two states: restart or reset. */
  readonly transient?: boolean
  /** Whether its last run has crashed, if that is known. */
  readonly crashed?: boolean
}

const installOf = ({ install: { failure_reason, phase } }: ServerRecord) =>
  failure_reason === undefined ? { phase } : { phase, failure_reason }

export const pendingOf = ({ definition, redefinition, status }: ServerRecord): ReadonlyArray<string> => {
  if (redefinition?.used === undefined || !(isUp(status) || status === "unknown")) return []
  return changesBetween(redefinition.used, definition)
    .filter(({ needs }) => needs !== "nothing")
    .map(({ path }) => path)
}

type IsOutdated = (record: ServerRecord) => boolean

type PlaceOf = (record: ListedServer) => number

export const isQueued = ({ run, status }: Pick<ServerRecord, "run" | "status">): boolean =>
  run?.waiting === true && (status === "offline" || status === "unknown")

const runOf = (record: ListedServer, placeOf: PlaceOf) => {
  const { stopped_by }: RunState = record.run ?? {}
  return {
    run: runRuleOf(record.definition),
    ...(stopped_by === undefined ? {} : { stopped_by }),
    ...(isQueued(record) ? { waiting: placeOf(record) } : {})
  }
}

/** Returns the summary with its fields in the contract's order, and `overrides` only if there are any. */
export const summaryOf = (
  record: ListedServer,
  node_name: string,
  include: Include,
  isOutdated: IsOutdated = () => false,
  placeOf: PlaceOf = () => 1
): Server => {
  const { definition, overrides } = record
  return {
    id: record.id,
    blueprint_id: record.blueprint_id,
    node_name,
    node_id: record.node_id,
    allocations: record.allocations,
    ...(overrides !== undefined && Object.keys(overrides).length > 0 ? { overrides } : {}),
    ...(has(include, "status") ? { status: record.status } : {}),
    ...(has(include, "limits") ? { limits: definition.limits } : {}),
    ...(has(include, "software")
      ? { software: definition.software, version: definition.version, image: definition.image }
      : {}),
    ...(has(include, "labels") ? { labels: record.labels } : {}),
    ...(has(include, "name") ? { name: record.name ?? null } : {}),
    ...(has(include, "install") ? { install: installOf(record) } : {}),
    ...(has(include, "last_crash") ? { last_crash: record.last_crash ?? null } : {}),
    ...(has(include, "ports")
      ? { ports: namedPorts(record.allocations, definition.port_names ?? ["game"]) }
      : {}),
    ...(has(include, "expires_at") ? { expires_at: record.expires_at ?? null } : {}),
    ...(has(include, "restart")
      ? { restart: record.status === "offline" ? (record.restart ?? null) : null }
      : {}),
    ...(has(include, "run") ? { run: runOf(record, placeOf) } : {}),
    ...(has(include, "problem")
      ? { problem: record.status === "offline" ? (record.problem ?? null) : null }
      : {}),
    ...(has(include, "definition")
      ? {
          definition: { revision: revisionOf(definition), outdated: isOutdated(record) },
          pending: pendingOf(record)
        }
      : {}),
    ...(has(include, "save") ? { save: definition.save } : {}),
    ...(has(include, "updated_at") ? { updated_at: record.updated_at } : {}),
    ...(include === plain ? {} : { created_at: record.created_at })
  }
}

/** Adds figures to the JSON of a summary. */
export const withStats = (summary: string, stats: ServerStats | null): string =>
  `${summary.slice(0, -1)},"stats":${JSON.stringify(stats)}}`

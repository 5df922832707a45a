/** The selection of servers by a caller (spec 3.6). */
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { admits, type Restriction } from "../../../contract/domain/Key.ts"
import { type LabelCondition, meets } from "../../../contract/domain/Labels.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerStatus } from "../../../contract/domain/ServerStatus.ts"

export interface ServerFilter {
  readonly blueprint_id?: string
  readonly node_id?: NodeId
  readonly status?: ServerStatus
  readonly labels: ReadonlyArray<LabelCondition>
  readonly ids?: ReadonlySet<ServerId>
  /** The servers that the caller may read; all if absent. */
  readonly within?: Restriction | undefined
  /** The beginning of an id, or a part of a name in lower case. */
  readonly q?: { readonly id: string; readonly name: string }
}

export interface ListRequest {
  readonly filter: ServerFilter
  readonly limit?: number
  readonly after?: ServerId
}

export const matches = (filter: ServerFilter, record: ServerRecord): boolean => {
  const { blueprint_id, ids, labels, node_id, q, status, within } = filter
  return (
    (blueprint_id === undefined || record.blueprint_id === blueprint_id) &&
    (node_id === undefined || record.node_id === node_id) &&
    (status === undefined || record.status === status) &&
    (ids === undefined || ids.has(record.id)) &&
    admits(within, record) &&
    labels.every((condition) => meets(record.labels, condition)) &&
    (q === undefined || record.id.startsWith(q.id) || (record.name?.toLowerCase().includes(q.name) ?? false))
  )
}

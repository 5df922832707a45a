/** The selection of servers by a caller (spec 3.6), and the queries of console lines and the output of installations. */

import { Effect } from "effect"
import { InvalidRequest, joinReasons } from "../../../contract/domain/errors.ts"
import { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { admits, type Restriction } from "../../../contract/domain/Key.ts"
import {
  type LabelCondition,
  labelCondition,
  MAX_CONDITIONS,
  meets
} from "../../../contract/domain/Labels.ts"
import { type Page, pageNumber, pageSize } from "../../../contract/domain/Pagination.ts"
import { labelConditions, type Selector } from "../../../contract/domain/Selector.ts"
import { type Includable, includable, type ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerStatus } from "../../../contract/domain/ServerStatus.ts"
import type { LinesRequest } from "../../../contract/nodeApi/Daemon.ts"
import { defined } from "../../../shared/work/defined.ts"
import type { RowPage } from "../../store/sql/rows.ts"
import { type Include, includeOf, plain } from "./summary.ts"

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

/** 400: the place where a page begins is unknown. */
export const unknownAfter = (kind: string, id: string | undefined) =>
  new InvalidRequest({
    detail: `query field after: no ${kind} has this id: ${id}`,
    hint: "Begin with the first page again: leave `after` out."
  })

/**
 * Returns a page of the rows that are wanted, which are read `rows` at a time (default: as many as the page has, and one more). `next` is its last id, if more follow.
 * @error InvalidRequest no row has the id `after`
 */
export const wantedPage = Effect.fnUntraced(function* <A extends { readonly id: string }, E, R>(
  { after, limit, noun, rows = limit + 1 }: RowPage & { readonly noun: string; readonly rows?: number },
  read: (page: RowPage) => Effect.Effect<ReadonlyArray<A> | undefined, E, R>,
  isWanted: (row: A) => boolean = () => true
) {
  const found: Array<A> = []
  let last = after
  while (found.length <= limit) {
    const some = yield* read({ limit: rows, after: last })
    if (some === undefined && last === after) return yield* unknownAfter(noun, after)
    found.push(...(some ?? []).filter(isWanted))
    last = some?.at(-1)?.id
    if (some === undefined || some.length < rows) break
  }
  const records = found.slice(0, limit)
  return { records, next: found.length > limit ? records.at(-1)?.id : undefined }
})

/** Returns a page of lines, whose pages count from the oldest, as if page 1 were the newest. */
export const newestLines = Effect.fnUntraced(function* <E>(
  read: (at: LinesRequest) => Effect.Effect<Page<string>, E>,
  { page, per_page }: LinesRequest
) {
  const oldest = yield* read({ page: 1, per_page })
  const { total } = oldest
  const to = total - (page - 1) * per_page
  const from = Math.max(0, to - per_page)
  if (to <= 0) return { items: [], total }
  const first = Math.floor(from / per_page) + 1
  const last = Math.floor((to - 1) / per_page) + 1
  const pages = yield* Effect.forEach(first === last ? [first] : [first, last], (page) =>
    page === 1 ? Effect.succeed(oldest) : read({ page, per_page })
  )
  const begin = (first - 1) * per_page
  return { items: pages.flatMap(({ items }) => items).slice(from - begin, to - begin), total }
})

const linePages = { standard: 100, fallback: 100, maximum: 1000 }

interface LinesQuery {
  readonly page?: string
  readonly per_page?: string
}

export const linePage = (query: LinesQuery) => ({
  page: pageNumber(query.page),
  per_page: pageSize(query.per_page, linePages)
})

/** Reads a page of console lines: `page` and `per_page` if given, else the newest `size`, clamped. */
export const logPage = ({ size = "", ...query }: LinesQuery & { readonly size?: string }) => {
  if (`${query.page ?? ""}${query.per_page ?? ""}` !== "") return linePage(query)
  return { page: 1, per_page: size === "" ? 100 : Math.min(Math.max(Number(size), 1), 100) }
}

const isIncludable = (name: string): name is Includable => includable.some((known) => known === name)

/** Reads `include=`, whose names the route has checked. */
export const parseInclude = (text = ""): Include =>
  text === "" ? plain : includeOf(text.split(",").filter(isIncludable))

/** Reads conditions on labels. @error InvalidRequest names each that cannot be read */
const parseConditions = (
  texts: ReadonlyArray<string>,
  field: string
): Effect.Effect<ReadonlyArray<LabelCondition>, InvalidRequest> => {
  const read = texts.map((text) => labelCondition(text) ?? text)
  const refused = read.filter((found) => typeof found === "string")
  return texts.length > MAX_CONDITIONS
    ? new InvalidRequest({ detail: `${field}: expected at most ${MAX_CONDITIONS}, got ${texts.length}` })
    : refused.length === 0
      ? Effect.succeed(read.filter((found) => typeof found !== "string"))
      : new InvalidRequest({
          detail: joinReasons(
            refused.map(
              (text) => `${field}: expected k=v, k!=v, k or !k, got ${JSON.stringify(text.slice(0, 200))}`
            )
          )
        })
}

export const filterOf = Effect.fnUntraced(function* (
  selector: Selector
): Effect.fn.Return<ServerFilter, InvalidRequest> {
  const { blueprint_id, ids, node_id, status } = selector
  return {
    labels: yield* parseConditions(labelConditions(selector), "body field selector.labels"),
    ...defined({ blueprint_id, node_id, status }),
    ...(ids === undefined ? {} : { ids: new Set(ids) })
  }
})

interface ListQuery {
  readonly blueprint_id?: string
  readonly node_id?: string
  readonly status?: ServerStatus | ""
  readonly label?: string | ReadonlyArray<string>
  readonly q?: string
  readonly limit?: string
  readonly after?: string
}

const given = (text: string | undefined): text is string => text !== undefined && text !== ""

export const parseListQuery = Effect.fnUntraced(function* (
  query: ListQuery
): Effect.fn.Return<ListRequest, InvalidRequest> {
  const { after, blueprint_id, limit, node_id, q, status } = query
  const labels = yield* parseConditions(
    [query.label ?? []].flat().filter((text) => text !== ""),
    "query field label"
  )
  return {
    filter: {
      labels,
      ...(given(blueprint_id) ? { blueprint_id } : {}),
      ...(given(node_id) ? { node_id: NodeId.make(node_id) } : {}),
      ...(status !== undefined && status !== "" ? { status } : {}),
      ...(given(q) ? { q: { id: q, name: q.toLowerCase() } } : {})
    },
    ...(given(limit) ? { limit: Number(limit) } : {}),
    ...(given(after) ? { after: ServerId.make(after) } : {})
  }
})

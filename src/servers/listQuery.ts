/** The query of a list of servers (spec 3.6). */

import { Effect } from "effect"
import { InvalidRequest, joinReasons } from "../domain/errors.ts"
import { NodeId, ServerId } from "../domain/Id.ts"
import { type LabelCondition, labelCondition, MAX_CONDITIONS } from "../domain/Labels.ts"
import { labelConditions, type Selector } from "../domain/Selector.ts"
import { type Includable, includable } from "../domain/Server.ts"
import type { ServerStatus } from "../domain/ServerStatus.ts"
import type { ListRequest, ServerFilter } from "./index/ServerFilter.ts"
import { type Include, includeOf, plain } from "./index/summary.ts"

const isIncludable = (name: string): name is Includable => includable.some((known) => known === name)

/** Reads `include=`; its route has checked the names. */
export const parseInclude = (text = ""): Include =>
  text === "" ? plain : includeOf(text.split(",").filter(isIncludable))

/**
 * Reads conditions on labels.
 *
 * @error InvalidRequest names each that cannot be read
 */
export const parseConditions = (
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

/** Returns the conditions of a selector. */
export const filterOf = Effect.fnUntraced(function* (
  selector: Selector
): Effect.fn.Return<ServerFilter, InvalidRequest> {
  const { blueprint_id, ids, node_id, status } = selector
  return {
    labels: yield* parseConditions(labelConditions(selector), "body field selector.labels"),
    ...(blueprint_id === undefined ? {} : { blueprint_id }),
    ...(node_id === undefined ? {} : { node_id }),
    ...(status === undefined ? {} : { status }),
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

/** Returns the request of a query. */
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

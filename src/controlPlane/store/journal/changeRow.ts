/** The columns of a {@link Change} in the table `journal`. */

import { Effect, Predicate, Schema } from "effect"
import { Change } from "../../../contract/domain/Journal.ts"
import { isPlainInstall } from "../sql/plainColumns.ts"

export interface ChangeRow {
  readonly topic: string
  /** Empty for a change that is about no server. */
  readonly server_id: string
  /** The payload, or the fields of a change that is about no server. */
  readonly payload: unknown
}

const topics: ReadonlySet<string> = new Set(Change.members.map(({ fields }) => fields.topic.literal))
const decode = Schema.decodeUnknownEffect(Change)
const encode = Schema.encodeEffect(Change)

export const changeRow = (change: Change): ChangeRow => {
  if ("server_id" in change) return change
  const { topic, ...payload } = change
  return { topic, server_id: "", payload }
}

/** A change that does not fit its topic is a defect. A payload without fields needs no schema. */
export const checkChange = (change: Change): Effect.Effect<void> => {
  const { payload, topic } = changeRow(change)
  const isPlain = !Predicate.isObject(payload) || (topic === "server:install" && isPlainInstall(payload))
  return isPlain ? Effect.void : Effect.asVoid(Effect.orDie(encode(change)))
}

/** Decodes a row. An internal topic of a newer version becomes `unknown:change`; the public topics never change. */
export const decodeChange = ({ payload, server_id, topic }: ChangeRow): Effect.Effect<Change> => {
  if (topic.includes(":") && !topics.has(topic)) return Effect.succeed({ topic: "unknown:change" })
  const fields = server_id === "" && Predicate.isObject(payload) ? payload : { server_id, payload }
  return Effect.orDie(decode({ topic, ...fields }))
}

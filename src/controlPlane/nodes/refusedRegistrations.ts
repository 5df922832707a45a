import { Effect, Option, Schema } from "effect"
import type { HttpServerResponse } from "effect/http"

const NODES = 1000
const REASONS = 20

const ErrorText = Schema.fromJsonString(Schema.Struct({ detail: Schema.String, hint: Schema.String }))
const decodeText = Schema.decodeUnknownOption(ErrorText)

const textOf = (response: HttpServerResponse.HttpServerResponse): string => {
  const { body } = response
  const text = body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : ""
  return Option.match(decodeText(text), {
    onNone: () => `status ${response.status}`,
    onSome: ({ detail, hint }) => `${detail} (${response.status}). ${hint}`
  })
}

/** Logs each reason of a refused registration once until the node registers, because a daemon retries forever. */
export const makeLogRefusedRegistrations = () => {
  const logged = new Map<string, Set<string>>()
  const isNew = (node: string, reason: string): boolean => {
    const reasons = logged.get(node) ?? new Set()
    if (reasons.has(reason) || reasons.size >= REASONS) return false
    logged.set(node, reasons.add(reason))
    const [oldest] = logged.keys()
    if (logged.size > NODES && oldest !== undefined) logged.delete(oldest)
    return true
  }
  return (node: string, response: HttpServerResponse.HttpServerResponse): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (response.status < 300) logged.delete(node)
      if (response.status < 400 || response.status >= 500) return Effect.void
      // Callers without a key can send any number of these, each with another name.
      if (response.status === 400 || response.status === 429) return Effect.void
      const reason = textOf(response)
      if (!isNew(node, reason)) return Effect.void
      return Effect.logWarning(`registration refused: ${reason}`.replace(/\p{Cc}/gu, " ")).pipe(
        Effect.annotateLogs({ node_id: node })
      )
    })
}

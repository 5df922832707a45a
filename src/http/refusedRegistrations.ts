import { Effect, Option, Schema } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { requestPath } from "./requestPath.ts"

/** Nodes, and reasons of each, that are kept. */
const NODES = 1000
const REASONS = 20

const registerPath = /^\/api\/nodes\/([^/]{1,384})\/register\/?$/

const ErrorText = Schema.fromJsonString(Schema.Struct({ detail: Schema.String, hint: Schema.String }))
const decodeText = Schema.decodeUnknownOption(ErrorText)

/** What an error body says, as one line. */
const textOf = (response: HttpServerResponse.HttpServerResponse): string => {
  const { body } = response
  const text = body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : ""
  return Option.match(decodeText(text), {
    onNone: () => `answered ${response.status}`,
    onSome: ({ detail, hint }) => `${detail} (${response.status}). ${hint}`
  })
}

/**
 * Says which registrations are refused, and why: a daemon tries again for ever, so each reason of a node is told once
 * until it has registered. Whoever sent too many wrong keys is told nothing new.
 */
export const makeRefusedRegistrations = () => {
  const told = new Map<string, Set<string>>()
  const isNews = (node: string, reason: string): boolean => {
    const reasons = told.get(node) ?? new Set()
    if (reasons.has(reason) || reasons.size >= REASONS) return false
    told.set(node, reasons.add(reason))
    const [oldest] = told.keys()
    if (told.size > NODES && oldest !== undefined) told.delete(oldest)
    return true
  }
  return (
    request: HttpServerRequest.HttpServerRequest,
    response: HttpServerResponse.HttpServerResponse
  ): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (request.method !== "POST") return Effect.void
      const node = registerPath.exec(requestPath(request.url))?.[1]
      if (node === undefined) return Effect.void
      if (response.status < 300) told.delete(node)
      if (response.status < 400 || response.status >= 500) return Effect.void
      // Of these strangers can have any number, each with another name.
      if (response.status === 400 || response.status === 429) return Effect.void
      const reason = textOf(response)
      if (!isNews(node, reason)) return Effect.void
      const line = `the registration of node ${node} is refused: ${reason}`
      return Effect.logWarning(line.replace(/\p{Cc}/gu, " "))
    })
}

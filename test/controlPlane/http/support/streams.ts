/** Event streams as a client sees them, byte for byte. */
import { request } from "node:http"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../../support/eventually.ts"
import type { Service } from "../../../support/Service.ts"
import { expectStatus } from "../../../support/servers.ts"
import { bearer, keysOf } from "./http.ts"

/** The head of a stream and its body so far. */
export const open = (api: Service, path: string, headers: Record<string, string> = bearer(api)) =>
  Effect.gen(function* () {
    const sent = request(`${api.url}${path}`, { headers, agent: false }).end()
    yield* Effect.addFinalizer(() => Effect.sync(() => sent.destroy()))
    return yield* Effect.callback<{
      readonly status: number | undefined
      readonly headers: NodeJS.Dict<string | Array<string>>
      readonly text: () => string
    }>((resume) => {
      sent.on("error", () => {})
      sent.once("response", (response) => {
        let text = ""
        response.setEncoding("utf8")
        response.on("error", () => {})
        response.on("data", (chunk: string) => {
          text += chunk
        })
        resume(Effect.succeed({ status: response.statusCode, headers: response.headers, text: () => text }))
      })
    })
  })

export const seen = (text: () => string, part: string) =>
  eventually(Effect.sync(text), (all) => all.includes(part))

export const ticketOf = Effect.fnUntraced(function* (api: Service) {
  const answer = yield* expectStatus(api, 201, "POST", "/api/events/tickets")
  assert.deepStrictEqual(keysOf(answer.json), ["expires_at", "ticket"])
  assert.match(answer.json.expires_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  return String(answer.json.ticket)
})

export const newest = (api: Service) =>
  Effect.map(expectStatus(api, 200, "GET", "/metrics"), ({ text }) =>
    Number(/^muster_journal_newest_cursor (\d+)/m.exec(text)?.[1])
  )

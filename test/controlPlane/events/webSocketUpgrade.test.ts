import { get } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { connectionsAre, subscribersAre, ws } from "./clients.ts"
import { streamServer, TestServer } from "./streamServer.ts"

/** The status and body of a request that is not a valid handshake. */
const refusal = (path: string, headers: Record<string, string>) =>
  Effect.flatMap(TestServer, ({ port }) =>
    Effect.callback<{
      readonly status: number
      readonly body: { readonly code?: string; readonly detail?: string }
    }>((resume) => {
      const request = get({ host: "127.0.0.1", port, path, headers, agent: false }, (response) => {
        let body = ""
        response.on("data", (chunk) => {
          body += chunk
        })
        response.on("end", () =>
          resume(Effect.sync(() => ({ status: response.statusCode ?? 0, body: JSON.parse(body) })))
        )
      })
      return Effect.sync(() => request.destroy())
    })
  )

describe("spec 5.4: a refused handshake has the error body", () => {
  const good = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="
  }
  for (const [name, headers, code] of [
    ["no upgrade", {}, 426],
    ["another protocol", { ...good, upgrade: "h2c" }, 426],
    ["no Connection header", { ...good, connection: "keep-alive" }, 426],
    ["another version", { ...good, "sec-websocket-version": "12" }, 426],
    ["a broken key", { ...good, "sec-websocket-key": "x" }, 422],
    ["a broken subprotocol", { ...good, "sec-websocket-protocol": "a,,b" }, 422],
    ["a repeated subprotocol", { ...good, "sec-websocket-protocol": "a, a" }, 422]
  ] as const) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const { body, status } = yield* refusal("/events/ws", headers)
        assert.strictEqual(status, code)
        assert.strictEqual(body.code, String(code))
        yield* subscribersAre(0)
      }).pipe(Effect.provide(streamServer()))
    )
  }

  it.effect("an expired or invalid cursor refuses the handshake", () =>
    Effect.gen(function* () {
      const expired = yield* refusal("/events/ws?cursor=9", good)
      assert.strictEqual(expired.status, 410)
      assert.strictEqual(expired.body.detail, "cursor 9 was never issued")
      assert.strictEqual(yield* Effect.flip(Effect.scoped(ws("/events/ws?cursor=x"))), 422)
      yield* connectionsAre(0)
    }).pipe(Effect.provide(streamServer()))
  )

  it.effect("the console refuses in the same way", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* refusal("/console", {})).status, 426)
    }).pipe(Effect.provide(streamServer()))
  )
})

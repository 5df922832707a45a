import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import { conditional } from "../../src/api/conditional.ts"
import { SplitBody } from "../../src/api/SplitBody.ts"

const list = new SplitBody([Buffer.alloc(70_000, "["), Buffer.alloc(70_000, "]")])

/** Returns the body of the response to a request with these headers. */
const bodyFor = (headers: Readonly<Record<string, string>>) =>
  conditional({ body: list, etag: 'W/"1"', cursor: 1 }).pipe(
    Effect.map(({ body }) => body),
    Effect.provideService(
      HttpServerRequest.HttpServerRequest,
      HttpServerRequest.fromWeb(new Request("http://muster/api/servers", { headers }))
    )
  )

describe("design, Reads: a long list", () => {
  it.effect("its parts are not copied", () =>
    Effect.gen(function* () {
      const body = yield* bodyFor({})
      assert.strictEqual(body._tag === "Raw" && body.body, list)
      assert.strictEqual(body._tag === "Raw" && body.contentLength, 140_000)
    })
  )

  it.effect("the response to a request of an upgrade is one buffer", () =>
    Effect.gen(function* () {
      const body = yield* bodyFor({ upgrade: "websocket" })
      assert.deepStrictEqual(body._tag === "Uint8Array" && body.body, list.joined())
    })
  )
})

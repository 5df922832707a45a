import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { assert, describe, it, vi } from "@effect/vitest"
import { Effect } from "effect"
import { SplitBody } from "../../src/api/SplitBody.ts"
import { WholeResponse } from "../../src/http/WholeResponse.ts"

/** Longer than the buffers of a connection. */
const parts = Array.from({ length: 200 }, (_, n) => Buffer.alloc(32 * 1024 + n, n))

/** Responds with a body; returns the bytes that a client gets. */
const received = (respond: (response: ServerResponse) => void, method = "GET") =>
  Effect.gen(function* () {
    const server = yield* Effect.acquireRelease(
      Effect.sync(() => createServer({ ServerResponse: WholeResponse }, (_, response) => respond(response))),
      (server) => Effect.sync(() => server.close())
    )
    yield* Effect.callback<void>((resume) => void server.listen(0, () => resume(Effect.void)))
    const { port } = server.address() as AddressInfo
    const response = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/`, { method }))
    return new Uint8Array(yield* Effect.promise(() => response.arrayBuffer()))
  }).pipe(Effect.scoped)

describe("design, Reads: a body of several buffers", () => {
  const body = new SplitBody(parts)
  const withLength = (response: ServerResponse) => {
    response.strictContentLength = true
    response.writeHead(200, { "content-length": body.length })
  }

  it.live("the client gets the bytes of all parts, with and without a length", () =>
    Effect.gen(function* () {
      const finished: Array<string> = []
      for (const head of [withLength, () => {}]) {
        const bytes = yield* received((response) => {
          head(response)
          response.end(body, () => finished.push("finished"))
        })
        assert.isTrue(Buffer.concat(parts).equals(bytes))
      }
      assert.deepStrictEqual(finished, ["finished", "finished"])
    })
  )

  it.live("other bodies are sent as before", () =>
    Effect.gen(function* () {
      const text = yield* received((response) => response.end("text"))
      assert.strictEqual(Buffer.from(text).toString(), "text")
      assert.strictEqual((yield* received((response) => response.end())).length, 0)
      assert.strictEqual((yield* received((response) => response.end(body), "HEAD")).length, 0)
    })
  )

  it.live(
    "a body of another length than its head announces is refused; of the same length, in one write",
    () =>
      Effect.gen(function* () {
        const writes = vi.fn()
        const bytes = yield* received((response) => {
          response.strictContentLength = true
          response.writeHead(200, "OK", { "content-length": "6" })
          assert.throws(() => response.end("other"), /Content-Length/i)
          const write = vi.spyOn(response.socket ?? response, "write")
          response.end("grüß")
          writes(write.mock.calls.length)
        })
        assert.strictEqual(Buffer.from(bytes).toString(), "grüß")
        assert.deepStrictEqual(writes.mock.calls, [[1]])
      })
  )

  it("one part is not copied", () => {
    const [first = Buffer.alloc(0)] = parts
    assert.strictEqual(new SplitBody([first]).joined(), first)
    assert.deepStrictEqual(new SplitBody([]).joined(), new Uint8Array())
  })
})

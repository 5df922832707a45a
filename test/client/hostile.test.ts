import type { ServerResponse } from "node:http"
import { Readable } from "node:stream"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Stream } from "effect"
import type { MusterClient } from "../../src/client/index.ts"
import { clientOf, scripted } from "./support.ts"

type Respond = (response: ServerResponse) => void

const json = { "content-type": "application/json" }
const deleted = `{"Topic":"deleted","Data":{"server_id":"a","payload":null}}`

/** Never ends. */
const endless =
  (status: number): Respond =>
  (response) => {
    const chunk = Buffer.alloc(4 * 1024 * 1024, "x")
    const source = new Readable({ read: () => void source.push(chunk) })
    source.pipe(response.writeHead(status, json))
  }

const events =
  (text: string): Respond =>
  (response) =>
    response.writeHead(200, { "content-type": "text/event-stream" }).write(text)

const page: Respond = (response) =>
  response.writeHead(200, { "content-type": "text/html" }).end("<h1>hi</h1>")

/** The message of the failure of a use of the client. */
const failing = <A, E>(
  script: ReadonlyArray<Respond>,
  use: (muster: MusterClient["Service"]) => Effect.Effect<A, E>
) =>
  Effect.gen(function* () {
    const { url } = yield* scripted(...script)
    const failure = yield* Effect.flip(use(yield* clientOf(url)))
    return failure instanceof Error ? failure.message : String(failure)
  }).pipe(Effect.scoped)

const followed = (muster: MusterClient["Service"]) => Stream.runHead(muster.follow({ from: 5 }))

describe("the client of another program at the address of the service", () => {
  it.live("an endless body is cut, whatever its status", () =>
    Effect.gen(function* () {
      const message = yield* failing([endless(200)], (muster) => muster.nodes.list())
      assert.match(message, /the body exceeds 268435456 bytes \(200 GET http:.*nodes/)
      assert.match(yield* failing([endless(404)], (muster) => muster.nodes.list()), /404 GET/)
    })
  )

  it.live("a redirect is not followed", () =>
    Effect.gen(function* () {
      const redirect: Respond = (response) => response.writeHead(307, { location: "http://h/x" }).end()
      const message = yield* failing([redirect], (muster) =>
        muster.servers.create({ payload: { blueprint_id: "kept" } })
      )
      assert.match(message, /redirected to http:\/\/h\/x: set baseUrl to the address of the service/)
    })
  )

  it.live("a list without a cursor is a failure", () =>
    Effect.gen(function* () {
      const empty =
        (cursor?: string): Respond =>
        (response) =>
          response.writeHead(200, { ...json, ...(cursor && { "x-muster-cursor": cursor }) }).end("[]")
      assert.match(yield* failing([empty()], (muster) => muster.list()), /X-Muster-Cursor is missing/)
      for (const cursor of ["abc", "-1", "1e3", "9".repeat(16)]) {
        const message = yield* failing([empty(cursor)], (muster) => muster.list())
        assert.include(message, `the header X-Muster-Cursor is no cursor: ${cursor}`)
      }
    })
  )

  it.live("a follower ends if the response is no event stream, or its cursors decrease", () =>
    Effect.gen(function* () {
      assert.match(yield* failing([page], followed), /expected text\/event-stream, got text\/html/)
      const back = events(`id: 3\ndata: ${deleted}\n\n`)
      assert.match(yield* failing([back], followed), /cursor 3 after cursor 5/)
      const text = events(`id: abc\ndata: ${deleted}\n\n`)
      assert.match(yield* failing([text], followed), /cursor abc after cursor 5/)
      const long = events(`id: 6\ndata: ${"x".repeat(11 * 1024 * 1024)}`)
      assert.match(yield* failing([long], followed), /event exceeded the maximum size/)
    })
  )

  it.live("a retry field is a break, not an end", () =>
    Effect.gen(function* () {
      const { url } = yield* scripted(events("retry: 1\n\n"), events(`id: 6\ndata: ${deleted}\n\n`))
      const change = yield* followed(yield* clientOf(url))
      assert.strictEqual(Option.getOrThrow(change).cursor, 6)
    }).pipe(Effect.scoped)
  )

  it.live("a console without a WebSocket, as behind some proxies, is a failure", () =>
    Effect.gen(function* () {
      const upgrade = { code: "426", status: "Upgrade Required", detail: "no upgrade", hint: "Upgrade." }
      const noUpgrade: Respond = (response) => response.writeHead(426, json).end(JSON.stringify(upgrade))
      const ticket: Respond = (response) =>
        response
          .writeHead(201, json)
          .end(`{"ticket":"t","expires_at":"2026-01-01T00:00:00Z","expires_in":30}`)
      // The second request is that of the stored lines, and the last one asks why the WebSocket was refused.
      const message = yield* failing([ticket, noUpgrade, noUpgrade, noUpgrade], (muster) =>
        Effect.scoped(muster.console("a"))
      )
      assert.match(message, /An error occurred during Open/)
    })
  )
})

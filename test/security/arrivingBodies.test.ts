import { connect, type Socket } from "node:net"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { ARRIVING_BYTES } from "../../src/controlPlane/http/arrivingBodies.ts"
import {
  assertError,
  bearer,
  noNode,
  options,
  parseAnswer,
  rawRequest,
  service
} from "../controlPlane/http/support/http.ts"
import { eventually } from "../support/eventually.ts"
import { memoryOf, probed } from "../support/footprint.ts"
import { Muster } from "../support/Muster.ts"

const MIB = 1024 * 1024
const STRANGERS = 100
/** Nearly the largest body, in one chunk of a body without an end. */
const BODY = 1000 * 1024
const unfinished = `${BODY.toString(16)}\r\n${" ".repeat(BODY)}\r\n`
const chunked = { "transfer-encoding": "chunked" }

/** Sends bytes over a connection that stays open; `received` returns what has arrived. */
const open = (url: string, bytes: string) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly socket: Socket; readonly received: () => string }>((resume) => {
      let received = ""
      const { hostname, port } = new URL(url)
      const socket = connect({ host: hostname, port: Number(port) })
      socket.setEncoding("latin1").on("data", (text: string) => {
        received += text
      })
      socket.on("error", () => {})
      socket.write(bytes, () => resume(Effect.succeed({ socket, received: () => received })))
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )

layer(service({ ...noNode, ...probed }), options)("bodies that have not arrived completely", (it) => {
  describe("SECURITY.md: bounds", () => {
    it.effect("a body on a route that reads none takes no memory", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const before = yield* memoryOf(api)
        const head = rawRequest("GET", "/healthz", chunked)
        const peers = yield* Effect.all(
          Array.from({ length: STRANGERS }, () => open(api.url, head + unfinished)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual((yield* api.request("GET", "/healthz")).status, 200)
        yield* eventually(memoryOf(api), ({ used }) => used - before.used < (STRANGERS * BODY) / 4)
        for (const { received, socket } of peers) {
          assert.strictEqual(received(), "")
          socket.write("0\r\n\r\n")
        }
        yield* eventually(
          () => peers.filter(({ received }) => received().startsWith("HTTP/1.1 200")).length,
          (answered) => answered === STRANGERS
        )
      })
    )

    it.effect("one key sends 32 MiB at the same time; further bodies are 503, and later ones are read", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const head = rawRequest("POST", "/api/servers", { ...bearer(api), ...chunked })
        const count = ARRIVING_BYTES / MIB
        const peers = yield* Effect.all(
          Array.from({ length: count + 1 }, () => open(api.url, head + unfinished)),
          { concurrency: "unbounded" }
        )
        const answers = () => peers.map(({ received }) => received()).filter((text) => text !== "")
        yield* eventually(answers, ({ length }) => length === 1)
        assertError(
          parseAnswer(answers()[0] ?? ""),
          503,
          "the API key sends too many large bodies at the same time"
        )
        const small = yield* api.request("POST", "/api/servers", { body: { blueprint_id: "nope" } })
        assertError(small, 404, "blueprint not found: nope")
        for (const { socket } of peers) socket.write("0\r\n\r\n")
        yield* eventually(answers, ({ length }) => length === peers.length)
        assert.strictEqual(answers().filter((text) => text.startsWith("HTTP/1.1 422")).length, count)
        const later = yield* open(api.url, `${head}${unfinished}0\r\n\r\n`)
        yield* eventually(later.received, (text) => text.startsWith("HTTP/1.1 422"))
      })
    )
  })

  describe("spec 1.5: revocation", () => {
    it.effect("a request whose key is revoked before its body has arrived is 401, and changes nothing", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const leaked = yield* api.request("POST", "/api/keys", {
          body: { name: "leaked", scope: "AppAdmin" }
        })
        const body = JSON.stringify({ name: "heir", scope: "AppAdmin" })
        const head = rawRequest("POST", "/api/keys", {
          ...bearer(leaked.json),
          "content-length": `${body.length}`
        })
        const armed = yield* open(api.url, head + body.slice(0, -1))
        // The service reads connections in the order of their bytes: it has the head before this request.
        const before = yield* api.request("GET", "/api/keys")
        assert.strictEqual(before.status, 200)
        const revoked = yield* api.request("DELETE", `/api/keys/${leaked.json.id}`)
        assert.strictEqual(revoked.status, 200)
        armed.socket.write(body.slice(-1))
        const answer = yield* eventually(armed.received, (text) => text.includes("\r\n\r\n"))
        assertError(parseAnswer(answer), 401)
        assert.match(answer, /^www-authenticate: Bearer/im)
        const keys = (yield* api.request("GET", "/api/keys")).json as ReadonlyArray<{ readonly name: string }>
        assert.notInclude(
          keys.map(({ name }) => name),
          "heir"
        )
      })
    )
  })
})

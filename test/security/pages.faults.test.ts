import { createHash } from "node:crypto"
import type { ServerResponse } from "node:http"
import { connect } from "node:net"
import { brotliDecompressSync, gunzipSync } from "node:zlib"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { makeNodeServer } from "../../src/controlPlane/http/node/nodeServer.ts"
import { acceptedEncoding, CachedPages, MOST_LARGE } from "../../src/controlPlane/pages/CachedPages.ts"
import { exchange, noNode, options, raw, rawRequest, service } from "../controlPlane/http/support/http.ts"
import { chromium, chromiumNote, openPage } from "../support/browser.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { type Service, startService } from "../support/Service.ts"

/** The directives of a policy by name. */
const policyOf = (headers: Headers) =>
  new Map(
    (headers.get("content-security-policy") ?? "").split(";").map((directive) => {
      const [name = "", ...sources] = directive.trim().split(" ")
      return [name, sources]
    })
  )

/** The sources that may run or load as `kind`. */
const sourcesOf = (headers: Headers, kind: string) =>
  policyOf(headers).get(kind) ?? policyOf(headers).get("default-src")

const scriptOf = Effect.fnUntraced(function* (api: Service) {
  const page = yield* api.request("GET", "/docs", { key: null })
  const path = /<script src="([^"]+)"><\/script>/.exec(page.text)?.[1]
  assert.match(path ?? "", /^\/docs\/scalar\.js\?[\w-]{16}$/)
  return path ?? ""
})

/** The bytes of a body as sent. */
const sent = (api: Service, path: string, encoding: string) =>
  Effect.map(exchange(api, rawRequest("GET", path, { "accept-encoding": encoding })), (bytes) => {
    const end = bytes.indexOf("\r\n\r\n")
    return { head: bytes.slice(0, end), body: Buffer.from(bytes.slice(end + 4), "latin1") }
  })

layer(service(noNode), options)("pages", (it) => {
  describe("spec 1.10: headers of pages", () => {
    it.effect("every page forbids inline scripts, frames, sniffing and referrers", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/", "/nodes", "/docs"]) {
          const { headers, text } = yield* api.request("GET", path, { key: null })
          assert.strictEqual(headers.get("content-type"), "text/html; charset=utf-8")
          const scripts = sourcesOf(headers, "script-src")
          assert.deepStrictEqual(scripts, [path === "/docs" ? "'self'" : "'none'"], path)
          assert.notMatch(text, /<script(?![^>]*\bsrc=)|\son\w+=|javascript:/i, path)
          assert.deepStrictEqual(policyOf(headers).get("frame-ancestors"), ["'none'"])
          assert.deepStrictEqual(policyOf(headers).get("base-uri"), ["'none'"])
          assert.deepStrictEqual(policyOf(headers).get("form-action"), ["'none'"])
          assert.strictEqual(headers.get("x-frame-options"), "DENY")
          assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
          assert.strictEqual(headers.get("referrer-policy"), "no-referrer")
          const style = /<style>([\s\S]*)<\/style>/.exec(text)?.[1]
          if (style !== undefined) {
            const hash = createHash("sha256").update(style).digest("base64")
            assert.deepStrictEqual(sourcesOf(headers, "style-src"), [`'sha256-${hash}'`])
          }
        }
      })
    )

    it.effect("responses under /api are not cached, and no response is sniffed", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [method, path, key, status] of [
          ["GET", "/api/nodes", api.key, 200],
          ["HEAD", "/api/servers", api.key, 200],
          ["POST", "/api/events/tickets", api.key, 201],
          ["GET", "/api/nodes", null, 401],
          ["GET", "/api/nope", api.key, 404],
          ["PUT", "/api/nodes", api.key, 405],
          ["POST", "/api/servers", api.key, 422]
        ] as const) {
          const answer = yield* api.request(method, path, { key })
          assert.strictEqual(answer.status, status, `${method} ${path}`)
          assert.strictEqual(answer.headers.get("cache-control"), "no-store", `${method} ${path}`)
          assert.strictEqual(answer.headers.get("x-content-type-options"), "nosniff")
        }
        for (const path of [
          "/metrics",
          "/healthz",
          "/readyz",
          "/openapi.json",
          "/openapi-3.0.json",
          "/nope"
        ]) {
          const { headers } = yield* api.request("GET", path)
          assert.strictEqual(headers.get("x-content-type-options"), "nosniff", path)
        }
        const { headers, status } = yield* raw(api, "no HTTP\r\n\r\n")
        assert.deepStrictEqual([status, headers.get("x-content-type-options")], [422, "nosniff"])
      })
    )
  })

  describe("spec 1.10: /docs", () => {
    it.effect("the script is one file, the same in every encoding, and cached by its name", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const path = yield* scriptOf(api)
        const plain = yield* sent(api, path, "identity")
        const br = yield* sent(api, path, "gzip, deflate, br, zstd")
        const gzip = yield* sent(api, path, "gzip")
        assert.match(br.head, /^content-encoding: br\r?$/m)
        assert.match(gzip.head, /^content-encoding: gzip\r?$/m)
        assert.isTrue(brotliDecompressSync(br.body).equals(plain.body))
        assert.isTrue(gunzipSync(gzip.body).equals(plain.body))
        assert.isBelow(br.body.length * 3, plain.body.length)
        const hash = createHash("sha256").update(plain.body).digest("base64url").slice(0, 16)
        assert.strictEqual(path, `/docs/scalar.js?${hash}`)
        const etags = new Set<string | undefined>()
        for (const { head } of [plain, br, gzip]) {
          assert.match(head, /^cache-control: public, max-age=31536000, immutable\r?$/m)
          assert.match(head, /^vary: Accept-Encoding\r?$/m)
          assert.match(head, /^content-type: text\/javascript; charset=utf-8\r?$/m)
          etags.add(/^etag: (.*?)\r?$/m.exec(head)?.[1])
        }
        assert.strictEqual(etags.size, 3)
        const other = yield* sent(api, "/docs/scalar.js?another", "br")
        assert.match(other.head, /^cache-control: no-cache\r?$/m)
        assert.isTrue(other.body.equals(br.body))
      })
    )

    it.effect("the page and the document are sent compressed", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const path of ["/docs", "/openapi.json", "/openapi-3.0.json"]) {
          const plain = yield* sent(api, path, "identity")
          const br = yield* sent(api, path, "br")
          assert.match(br.head, /^content-encoding: br\r?$/m)
          assert.isTrue(brotliDecompressSync(br.body).equals(plain.body))
        }
      })
    )

    it.effect("the document declares the `bearer` scheme, so that tools offer a field for the key", () =>
      Effect.gen(function* () {
        const { json } = yield* (yield* Muster).request("GET", "/openapi.json", { key: null })
        assert.deepStrictEqual(json.components.securitySchemes, {
          bearer: { type: "http", scheme: "bearer" }
        })
      })
    )

    it.effect("the page itself is small", () =>
      Effect.gen(function* () {
        const { text } = yield* (yield* Muster).request("GET", "/docs", { key: null })
        assert.isBelow(text.length, 1000)
      })
    )

    it.effect("telemetry, proxy, fonts and developer tools of Scalar are off", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { body } = yield* sent(api, yield* scriptOf(api), "identity")
        const text = body.toString()
        const [, configuration = "{}"] =
          /createApiReference\("#reference", (\{[^\n]*\})\)\n$/.exec(text) ?? []
        const read = JSON.parse(configuration)
        assert.strictEqual(read.telemetry, false)
        assert.strictEqual(read.withDefaultFonts, false)
        assert.strictEqual(read.showDeveloperTools, "never")
        assert.strictEqual(read.hideClientButton, true)
        assert.deepStrictEqual(read.authentication, { preferredSecurityScheme: "bearer" })
        assert.strictEqual(read.url, "/openapi.json")
        assert.notProperty(read, "proxyUrl")
        assert.notInclude(text, 'new Function("")')
      })
    )

    it.effect.skipIf(chromium === undefined)(
      `in a browser, /docs renders, violates no policy and requests no other host, also for a test request${chromiumNote}`,
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const page = yield* openPage(`${api.url}/docs`)
          const shown = page.evaluate("document.body?.innerText ?? ''")
          yield* eventually(shown, (text) => String(text).includes("GET\n/api/nodes"), "60 seconds")
          const click = (name: string) =>
            eventually(
              page.evaluate(
                `(() => { const found = [...document.querySelectorAll("button")].find((it) => it.innerText.trim().startsWith(${JSON.stringify(name)})); found?.click(); return found !== undefined })()`
              ),
              (found) => found === true
            )
          yield* click("Test Request")
          // The field for a key, not for a user and a password.
          yield* eventually(shown, (text) => String(text).includes("Bearer Token"))
          yield* click("Send")
          yield* eventually(Effect.sync(page.requests), (urls) => urls.includes(`${api.url}/api/nodes`))
          const elsewhere = page
            .requests()
            .filter((url) => !url.startsWith(`${api.url}/`) && !url.startsWith("data:"))
          assert.deepStrictEqual(elsewhere, [])
          assert.deepStrictEqual(page.problems(), [])
          const text = String(yield* shown)
          for (const offered of ["Ask AI", "MCP", "Developer Tools", "Share", "Deploy", "Open API Client"]) {
            assert.notInclude(text, offered)
          }
        }).pipe(Effect.scoped)
    )

    it.effect.skipIf(chromium === undefined)(
      `in a browser, / and /nodes have their style and violate no policy${chromiumNote}`,
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          for (const path of ["/", "/nodes"]) {
            const page = yield* openPage(`${api.url}${path}`)
            const width = page.evaluate(
              `document.querySelector("nav") && getComputedStyle(document.body).maxWidth`
            )
            yield* eventually(width, (value) => value === "1056px")
            assert.deepStrictEqual(page.problems(), [])
            // Without an effective policy this would run.
            const inline = `(() => { const it = document.createElement("script"); it.textContent = "window.ran = true"; document.body.append(it); return window.ran === true })()`
            assert.strictEqual(yield* page.evaluate(inline), false)
            yield* eventually(Effect.sync(page.problems), (problems) => problems.length > 0)
          }
        }).pipe(Effect.scoped)
    )
  })
})

/** More than the kernel buffers for a client that does not read. */
const HUGE = new Uint8Array(24 * 1024 * 1024)

/** The middleware of the pages with a huge page and a small one; the responses in progress. */
const hugePages = Effect.gen(function* () {
  const server = makeNodeServer()
  const open = new Set<ServerResponse>()
  server.on("request", (_, response: ServerResponse) => {
    open.add(response)
    for (const event of ["finish", "close"]) response.once(event, () => open.delete(response))
  })
  const huge = (headers: Record<string, string>) => HttpServerResponse.uint8Array(HUGE, { headers })
  const pages = Layer.mergeAll(
    HttpRouter.add("GET", "/huge", huge({})),
    HttpRouter.add("GET", "/compressed", huge({ "content-encoding": "br" })),
    HttpRouter.add("GET", "/never", Effect.never),
    HttpRouter.add("GET", "/small", HttpServerResponse.text("small"))
  ).pipe(Layer.provide(CachedPages))
  yield* Layer.build(
    HttpRouter.serve(pages, { disableLogger: true, disableListenLog: true }).pipe(
      Layer.provide(NodeHttpServer.layer(() => server, { host: "127.0.0.1", port: 0 }))
    )
  )
  const address = server.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  const begun = () => [...open].filter(({ headersSent, socket }) => headersSent && socket !== null).length
  /** Responses that are written, also if another one must be sent first. */
  const ready = () => [...open].filter(({ writableEnded }) => writableEnded).length
  return { ready, api: { url: `http://127.0.0.1:${port}` }, begun }
})

/** A client that requests paths at once without compression, and reads nothing. */
const stalled = (api: Pick<Service, "url">, ...paths: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const { hostname, port } = new URL(api.url)
      const socket = connect({ host: hostname, port: Number(port) }).on("error", () => {})
      socket.pause().write(paths.map((path) => `GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`).join(""))
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

describe("pages: large responses without compression", () => {
  it.live(
    "four are written at a time; other requests are answered; an aborted connection releases its slot",
    () =>
      Effect.gen(function* () {
        const { api, begun } = yield* hugePages
        const clients = yield* Effect.all(
          Array.from({ length: 20 }, () => stalled(api, "/huge", "/huge", "/huge"))
        )
        yield* eventually(Effect.sync(begun), (count) => count >= MOST_LARGE)
        for (const path of ["/small", "/compressed", "/small"]) {
          assert.match(yield* exchange(api, rawRequest("GET", path)), /^HTTP\/1\.1 200 /)
          assert.match(yield* exchange(api, rawRequest("HEAD", "/huge")), /^HTTP\/1\.1 200 /)
          const known = rawRequest("GET", "/huge", { "if-none-match": "*" })
          assert.match(yield* exchange(api, known), /^HTTP\/1\.1 304 /)
        }
        assert.strictEqual(begun(), MOST_LARGE)
        // Connections with a response in progress or waiting, and further responses behind it.
        for (const socket of clients.slice(0, 16)) socket.destroy()
        for (let n = 0; n < 20; n += 1) yield* exchange(api, rawRequest("GET", "/small"))
        yield* eventually(Effect.sync(begun), (count) => count === MOST_LARGE)
        for (const socket of clients) socket.destroy()
        const answer = yield* exchange(api, rawRequest("GET", "/huge"))
        assert.isAbove(answer.length, HUGE.length)
      }).pipe(Effect.scoped)
  )

  it.live("the uncompressed script waits for a slot; no other request does; an abort releases the slot", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: noNode })
      const whole = yield* sent(api, "/docs/scalar.js", "identity")
      const clients = yield* Effect.all(
        Array.from({ length: 20 }, () =>
          stalled(api, "/docs/scalar.js", "/docs/scalar.js", "/docs/scalar.js")
        )
      )
      for (let n = 0; n < 10; n += 1) {
        for (const encoding of ["br", "gzip"]) {
          const { head } = yield* sent(api, "/docs/scalar.js", encoding)
          assert.match(head, /^HTTP\/1\.1 200 /)
        }
        assert.strictEqual((yield* raw(api, rawRequest("GET", "/healthz"))).status, 200)
      }
      const answer = yield* Effect.forkChild(sent(api, "/docs/scalar.js", "identity"))
      for (let n = 0; n < 10; n += 1) yield* raw(api, rawRequest("GET", "/healthz"))
      assert.isUndefined(answer.pollUnsafe())
      for (const socket of clients) socket.destroy()
      assert.isTrue((yield* Fiber.join(answer)).body.equals(whole.body))
      assert.notInclude(api.output(), "MaxListenersExceeded")
    }).pipe(Effect.scoped)
  )

  it.live("a response that waits behind another releases its slot when the connection is aborted", () =>
    Effect.gen(function* () {
      const { api, ready } = yield* hugePages
      const clients = yield* Effect.all(
        Array.from({ length: MOST_LARGE }, () => stalled(api, "/never", "/huge"))
      )
      yield* eventually(Effect.sync(ready), (count) => count === MOST_LARGE)
      for (const socket of clients) socket.destroy()
      const answer = yield* exchange(api, rawRequest("GET", "/huge"))
      assert.isAbove(answer.length, HUGE.length)
    }).pipe(Effect.scoped)
  )

  it.live("/openapi.json is the same document in every encoding", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: noNode })
      const plain = yield* sent(api, "/openapi.json", "identity")
      const br = yield* sent(api, "/openapi.json", "br")
      const gzip = yield* sent(api, "/openapi.json", "gzip")
      assert.isTrue(brotliDecompressSync(br.body).equals(plain.body))
      assert.isTrue(gunzipSync(gzip.body).equals(plain.body))
      for (const { head } of [plain, br, gzip]) {
        assert.match(head, /^content-type: application\/json\r?$/m)
        assert.match(head, /^vary: Accept-Encoding\r?$/m)
      }
    }).pipe(Effect.scoped)
  )
})

describe("spec 1.10: MUSTER_PUBLIC_PAGES", () => {
  const named = {
    MUSTER_NODE_NAME: "node-of-the-page",
    MUSTER_NODE_LOCATION: "attic",
    MUSTER_NODE_URL: "http://10.11.12.13:5620"
  }

  it.live("banner: /nodes shows name, location and state, but no id or address; all: /nodes shows both", () =>
    Effect.gen(function* () {
      for (const pages of ["banner", "all"] as const) {
        const api = yield* startService({ env: { ...named, MUSTER_PUBLIC_PAGES: pages } })
        const [node] = (yield* api.request("GET", "/api/nodes")).json
        const { text } = yield* api.request("GET", "/nodes", { key: null })
        for (const value of ["node-of-the-page", "attic", "connected"])
          assert.include(text, `>${value}</span></td>`)
        for (const value of [node.id, "10.11.12.13", "Last heartbeat", "GiB"]) {
          assert.strictEqual(text.includes(value), pages === "all", value)
        }
        const start = yield* api.request("GET", "/", { key: null })
        for (const value of ["Uptime", "Warnings", "of 1 connected"]) {
          assert.strictEqual(start.text.includes(value), pages === "all", value)
        }
      }
    }).pipe(Effect.scoped)
  )
})

describe("RFC 9110, section 12.5.3: Accept-Encoding", () => {
  it("the service uses the best accepted encoding; q=0 refuses an encoding", () => {
    const cases = {
      "": "identity",
      "gzip, deflate, br": "br",
      "GZIP;q=0.5": "gzip",
      "br;q=0, gzip": "gzip",
      "br;q=0.0,gzip;q=0": "identity",
      "br;q=0.001": "br",
      "*": "identity",
      "deflate, zstd": "identity"
    }
    for (const [header, encoding] of Object.entries(cases))
      assert.strictEqual(acceptedEncoding(header), encoding, header)
  })
})

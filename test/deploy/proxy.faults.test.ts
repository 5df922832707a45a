import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { request as httpRequest } from "node:http"
import { request as httpsRequest } from "node:https"
import { resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Ref } from "effect"
import WebSocket from "ws"
import { makeBalancer, type Outcome, subscriber } from "../support/balancer.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { alone, freePort } from "../support/nodes.ts"
import { nodeOf, replicaSet } from "../support/replicaSet.ts"
import { adminKey, requestTo, startService } from "../support/Service.ts"
import { create, expectStatus } from "../support/servers.ts"
import { caddyProgram, nginxProgram, startCaddy, startNginx } from "./proxies.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
/** The settings of `deploy/systemd/muster.env` for a proxy on the same machine. */
const behindProxy = { MUSTER_TRUSTED_PROXIES: "127.0.0.1/32,::1/128" }
const cert = readFileSync(resolve(import.meta.dirname, "../support/tls/cert.pem"))

/** Sends a request from an address of loopback; returns its status. */
const from = (localAddress: string, url: string, headers: Record<string, string>) =>
  Effect.callback<number>((resume) => {
    const sent = httpRequest(url, { localAddress, headers, agent: false }, (response) => {
      response.resume()
      response.on("end", () => resume(Effect.succeed(response.statusCode ?? 0)))
    })
    sent.on("error", (error) => resume(Effect.die(error)))
    sent.end()
  })

/** Opens the events over a WebSocket; returns the messages so far. */
const socketAt = (url: string) =>
  Effect.gen(function* () {
    const messages: Array<string> = []
    const socket = yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          new WebSocket(`${url.replace("http", "ws")}/api/events/ws`, {
            ca: cert,
            headers: { authorization: `Bearer ${adminKey}` }
          })
      ),
      (it) => Effect.sync(() => it.terminate())
    )
    socket.on("message", (data) => messages.push(String(data)))
    yield* Effect.promise(() => once(socket, "open"))
    return { messages: () => messages, close: Effect.sync(() => socket.close()) }
  })

const succeeded = ({ status }: Outcome) => status === 200 || status === 202

/** A write that changed nothing, because the database was too slow for it: the machine may be slow. */
const changedNothing = ({ status, text }: Outcome) => status === 503 && text.includes("Nothing was changed")

/** nginx asks no replica whether it is ready: a replica can end with a request that it has not read. */
const endedUnread = (outcome: Outcome) => changedNothing(outcome) || outcome.status === 502

const proxies = [
  { name: "Caddy", program: caddyProgram, start: startCaddy, isRepeatable: changedNothing },
  { name: "nginx", program: nginxProgram, start: startNginx, isRepeatable: endedUnread }
]

describe.each(proxies.map((proxy) => [`${proxy.name}${proxy.program.note}`, proxy] as const))(
  "deploy/proxy: %s",
  (_, { isRepeatable, program, start }) => {
    it.live.runIf(program.run)("streams pass at once, and end at the service when the client leaves", () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const service = yield* startService({ env: { ...env, ...behindProxy } })
        const proxy = yield* start([service.url])
        const api = { url: proxy.url, key: service.key, request: requestTo(proxy.url, service.key) }
        const openStreams = Effect.map(service.request("GET", "/metrics"), ({ text }) =>
          Number(/^muster_open_streams (\d+)$/m.exec(text)?.[1])
        )
        yield* Effect.gen(function* () {
          const events = yield* subscribe(api)
          const socket = yield* socketAt(api.url)
          yield* eventually(openStreams, (count) => count === 2)
          const id = yield* create(api, "kept")
          yield* eventually(
            () => events.of(id),
            (seen) => seen.join() === "installing,offline"
          )
          yield* eventually(socket.messages, (seen) => seen.filter((text) => text.includes(id)).length === 2)
        }).pipe(Effect.scoped)
        yield* eventually(openStreams, (count) => count === 0)
      }).pipe(Effect.scoped)
    )

    it.live.runIf(program.run)(
      "the service counts and logs the address of the client, whatever X-Forwarded-For the client sends",
      () =>
        Effect.gen(function* () {
          const service = yield* startService({ env: { ...alone, ...behindProxy } })
          const { url } = yield* start([service.url])
          const guess = (address: string, n: number) =>
            from(address, `${url}/api/nodes`, {
              authorization: `Bearer guess-${n}`,
              "x-forwarded-for": `203.0.113.${n}`
            })
          for (let n = 1; n <= 20; n++) assert.strictEqual(yield* guess("127.0.0.2", n), 401)
          assert.strictEqual(yield* guess("127.0.0.2", 21), 429)
          assert.strictEqual(yield* guess("127.0.0.3", 1), 401)
          yield* service.kill("SIGTERM")
          assert.match(service.output(), /failed authentications? from 127\.0\.0\.2/)
          assert.notInclude(service.output(), "203.0.113.")
        }).pipe(Effect.scoped)
    )

    it.live.runIf(program.run)("a body that the service refuses reaches it, and has its answer", () =>
      Effect.gen(function* () {
        const service = yield* startService({ env: { ...alone, ...behindProxy } })
        const { url } = yield* start([service.url])
        const large = yield* requestTo(url, service.key)("POST", "/api/servers", {
          raw: "x".repeat(4_000_000)
        })
        assert.strictEqual(large.status, 413)
        assert.strictEqual(large.json.code, "413")
      }).pipe(Effect.scoped)
    )

    it.live.runIf(program.run)(
      "while one replica after the other restarts, requests succeed, repeated ones once, and streams miss no event",
      () =>
        Effect.gen(function* () {
          const { env } = yield* definitions(files)
          const set = yield* replicaSet({ ...env, ...behindProxy, MUSTER_SHUTDOWN_GRACE: "5" })
          const ports = [yield* freePort, yield* freePort]
          const replica = (place: number) => set.start({ MUSTER_PORT: String(ports[place]) })
          let replicas = [yield* replica(0), yield* replica(1)]
          const [one, two] = replicas
          if (one === undefined || two === undefined) return yield* Effect.die("two replicas")
          const { url } = yield* start([one.url, two.url])
          // The node registers again with the other replica, as a daemon does at the address of the proxy.
          yield* nodeOf(set, { ...one, url }, "n1", "30000-34999")
          const events = yield* subscriber("sse", adminKey, Effect.succeed(url))
          const balancer = yield* makeBalancer(adminKey, () => [url], { failOpen: true })
          const outcomes: Array<Outcome> = []
          const done = yield* Ref.make(false)
          const work = Effect.gen(function* () {
            const send = yield* balancer.client
            while (!(yield* Ref.get(done))) {
              const idempotent = { "idempotency-key": randomUUID() }
              const create = send("POST", "/api/servers", { blueprint_id: "kept" }, idempotent)
              const list = send("GET", "/api/servers?ids_only=true")
              for (const attempt of [create, list]) {
                const first = yield* attempt
                outcomes.push(first)
                if (isRepeatable(first)) {
                  outcomes.push(yield* Effect.repeat(attempt, { until: (again) => !isRepeatable(again) }))
                }
              }
            }
          }).pipe(Effect.scoped)
          const load = yield* Effect.forkChild(
            Effect.forEach([1, 2], () => work, { concurrency: "unbounded", discard: true })
          )
          for (const place of [0, 1]) {
            const old = replicas[place]
            if (old === undefined) return yield* Effect.die("two replicas")
            yield* old.kill("SIGTERM")
            const next = yield* replica(place)
            replicas = replicas.with(place, next)
            // As an operator waits: the proxy uses the new replica before the other one ends.
            yield* eventually(
              Effect.map(next.request("GET", "/metrics"), ({ text }) =>
                /^muster_http_requests_total\{[^}]*status="202"[^}]*\} [1-9]/m.test(text)
              ),
              (used) => used
            )
          }
          yield* Ref.set(done, true)
          yield* Fiber.join(load)
          assert.deepStrictEqual(
            outcomes.filter((outcome) => !succeeded(outcome) && !isRepeatable(outcome)),
            []
          )
          const created = outcomes
            .filter(({ status }) => status === 202)
            .map(({ text }) => JSON.parse(text).id)
          assert.isAbove(created.length, 50)
          // The other replica reads the last creations a moment later.
          const listed = yield* eventually(
            expectStatus({ request: requestTo(url, adminKey) }, 200, "GET", "/api/servers?ids_only=true"),
            ({ json }) => json.length === created.length
          )
          assert.sameMembers(listed.json, created)
          yield* eventually(
            () => events.received().filter(({ text }) => text.includes('"offline"')).length,
            (count) => count === created.length
          )
          const cursors = events.received().map(({ cursor }) => cursor)
          assert.deepStrictEqual(
            cursors,
            [...new Set(cursors)].toSorted((a, b) => a - b)
          )
        }).pipe(Effect.scoped),
      180_000
    )
  }
)

describe(`deploy/proxy/nginx.conf: TLS${nginxProgram.note}`, () => {
  it.live.runIf(nginxProgram.run)("requests and WebSockets pass over TLS; plain HTTP is redirected", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const service = yield* startService({ env: { ...env, ...behindProxy } })
      const { redirect, secure } = yield* startNginx([service.url])
      const status = yield* Effect.callback<number>((resume) => {
        const headers = { authorization: `Bearer ${adminKey}` }
        const sent = httpsRequest(`${secure}/api/nodes`, { ca: cert, headers, agent: false }, (response) =>
          resume(Effect.succeed(response.statusCode ?? 0))
        )
        sent.on("error", (error) => resume(Effect.die(error)))
        sent.end()
      })
      assert.strictEqual(status, 200)
      const socket = yield* socketAt(secure)
      const id = yield* create(service, "kept")
      yield* eventually(socket.messages, (seen) => seen.some((text) => text.includes(id)))
      const moved = yield* Effect.promise(() => fetch(`${redirect}/api/nodes?x=1`, { redirect: "manual" }))
      assert.strictEqual(moved.status, 301)
      assert.strictEqual(moved.headers.get("location"), "https://127.0.0.1/api/nodes?x=1")
    }).pipe(Effect.scoped)
  )
})

import { Agent, request } from "node:http"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { HttpApi } from "effect/http-api"
import * as fc from "fast-check"
import { ApplicationApi } from "../../../src/contract/api/ApplicationApi.ts"
import type { ErrorStatus } from "../../../src/contract/domain/ApiError.ts"
import type { ServerId } from "../../../src/contract/domain/Id.ts"
import { Muster } from "../../support/Muster.ts"
import { freshSeed } from "../../support/random.ts"
import { type Service, ServiceFailed } from "../../support/Service.ts"
import { create, expectStatus } from "../../support/servers.ts"
import { type Document, type Generated, type Operation, requestsTo } from "./support/generate.ts"
import { assertError, options, service } from "./support/http.ts"

const RUNS_PER_ROUTE = 40

interface Route {
  readonly method: string
  readonly path: string
}

const routes: Array<Route> = []
HttpApi.reflect(ApplicationApi, {
  onGroup: () => {},
  onEndpoint: ({ endpoint }) => routes.push({ method: endpoint.method, path: endpoint.path })
})

// Deletions come last, so that every other route sees existing objects.
routes.sort((one, other) => Number(one.method === "DELETE") - Number(other.method === "DELETE"))

interface Received {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** Sends a request byte for byte; a stream is closed after its head. */
const send = (api: Service, agent: Agent, generated: Generated): Effect.Effect<Received, ServiceFailed> =>
  Effect.callback<Received, ServiceFailed>((resume) => {
    const { hostname, port } = new URL(api.url)
    const { method, target: path, body } = generated
    const headers = { ...generated.headers, "content-length": String(body.length) }
    const sent = request({ host: hostname, port, method, path, headers, agent }, (response) => {
      const chunks: Array<Buffer> = []
      const done = () => {
        const text = Buffer.concat(chunks).toString()
        const given = new Headers(
          Object.entries(response.headers).map(([name, value]): [string, string] => [name, String(value)])
        )
        resume(Effect.succeed({ status: response.statusCode ?? 0, headers: given, text }))
      }
      if (response.headers["content-type"] === "text/event-stream" && response.statusCode === 200) {
        done()
        sent.destroy()
        return
      }
      response.on("data", (chunk: Buffer) => chunks.push(chunk))
      response.on("end", done)
      response.on("error", () => {})
    })
    sent.on("error", (error) => resume(Effect.fail(new ServiceFailed({ message: String(error) }))))
    sent.end(body)
    return Effect.sync(() => sent.destroy())
  })

/** Operations of the document that match a path, without the router. */
const operationsAt = (document: Document, target: string, method: string): ReadonlyArray<Operation> => {
  const parts = (path: string) => path.split("/").filter((part) => part !== "")
  const asked = parts(target.replace(/[?;#].*$/, ""))
  return Object.entries(document.paths)
    .filter(([path]) => {
      const pattern = parts(path)
      return (
        pattern.length === asked.length &&
        pattern.every((part, i) => part.startsWith("{") || part === asked[i])
      )
    })
    .flatMap(([, operations]) => operations[(method === "HEAD" ? "GET" : method).toLowerCase()] ?? [])
}

/** The statuses that the document lists for the request, and those that any path may return. */
const expected = (document: Document, { method, target }: Generated): ReadonlyArray<number> => {
  const operations = operationsAt(document, target, method)
  const listed = operations.flatMap(({ responses }) => Object.keys(responses).map(Number))
  // A malformed parameter is 404. The key is checked first: 401, 429.
  const always = operations.length === 0 ? [401, 404, 405, 429] : [401, 404, 429]
  return [
    ...listed,
    ...always,
    ...(method === "OPTIONS" ? [204] : []),
    ...(target.length > 10_000 ? [431] : [])
  ]
}

const isErrorStatus = (status: number): status is ErrorStatus => status >= 400

const check = (document: Document, generated: Generated, received: Received) => {
  const { status, headers, text } = received
  assert.include(expected(document, generated), status, text)
  assert.notStrictEqual(status, 500)
  assert.match(headers.get("x-request-id") ?? "", /^[A-Za-z0-9._-]{1,128}$/)
  if (generated.method === "HEAD") assert.strictEqual(text, "")
  else if (isErrorStatus(status)) assertError({ status, headers, text, json: JSON.parse(text) }, status)
  else if (headers.get("content-type") === "application/json") assert.doesNotThrow(() => JSON.parse(text))
}

const shown = ({ method, target, headers, body }: Generated) =>
  JSON.stringify({
    method,
    target: target.slice(0, 500),
    headers,
    body: Buffer.from(body).toString("latin1").slice(0, 2000)
  })

layer(service(), options)("arbitrary requests", (it) => {
  describe("spec 1.3: every response", () => {
    it.effect(
      "every response has a documented status and, on failure, the error body; no request causes a defect or a side effect",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const agent = yield* Effect.acquireRelease(
            Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 16 })),
            (it) => Effect.sync(() => it.destroy())
          )
          const document: Document = (yield* expectStatus(api, 200, "GET", "/openapi.json")).json
          const seed = freshSeed()
          const node = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json[0].id
          const servers = yield* Effect.forEach(["kept", "kept", "passing", "endless"], (id) =>
            create(api, id)
          )
          const created = new Set(servers)
          // The only node must not be removed, which is possible for a node without servers.
          const knownTo = (route: Route) =>
            route.path.includes(":server")
              ? servers
              : route.path.includes(":node") && route.method !== "DELETE"
                ? [node]
                : ["kept", "game"]
          yield* Effect.forEach(
            routes.flatMap((route) =>
              fc
                .sample(requestsTo(document, route, api.key, knownTo(route)), {
                  numRuns: RUNS_PER_ROUTE,
                  seed
                })
                .map((generated) => ({ route, generated }))
            ),
            ({ route, generated }) =>
              Effect.gen(function* () {
                const received = yield* send(api, agent, generated)
                check(document, generated, received)
                if (route.path === "/api/servers" && received.status === 202) {
                  created.add(JSON.parse(received.text).id)
                }
              }).pipe(
                Effect.catchCause((cause) =>
                  Effect.die(
                    new Error(`seed ${seed}, ${route.method} ${route.path}: ${shown(generated)}\n${cause}`)
                  )
                )
              ),
            { concurrency: 8, discard: true }
          )
          assert.strictEqual((yield* api.request("GET", "/readyz")).status, 200)
          assert.notMatch(api.output(), /ERROR/)
          const ids: ReadonlyArray<ServerId> = (yield* expectStatus(
            api,
            200,
            "GET",
            "/api/servers?ids_only=true"
          )).json
          for (const id of ids)
            assert.isTrue(created.has(id), `seed ${seed}: ${id} was made by no answered request`)
          const nodes = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          assert.strictEqual(nodes.length, 1)
          yield* Effect.forEach(
            ids,
            (id) => expectStatus(api, 200, "DELETE", `/api/servers/${id}?force=true`),
            { concurrency: 8 }
          )
        }),
      60_000
    )
  })
})

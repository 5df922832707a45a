import { Agent, request } from "node:http"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { HttpApi } from "effect/http-api"
import * as fc from "fast-check"
import { ApplicationApi } from "../../src/api/ApplicationApi.ts"
import type { ErrorStatus } from "../../src/domain/ApiError.ts"
import { Muster } from "../support/Muster.ts"
import { type Service, ServiceFailed } from "../support/Service.ts"
import { expectStatus } from "../support/servers.ts"
import { type Document, type Generated, requestsTo } from "./support/generate.ts"
import { assertError, options, service } from "./support/http.ts"

const RUNS_PER_ROUTE = 45

interface Route {
  readonly method: string
  readonly path: string
}

const routes: Array<Route> = []
HttpApi.reflect(ApplicationApi, {
  onGroup: () => {},
  onEndpoint: ({ endpoint }) => routes.push({ method: endpoint.method, path: endpoint.path })
})

interface Received {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** Sends a request byte for byte; a stream is left once its head has come. */
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

/** Every status that the document lists for the route, or that any path may answer. */
const expected = (document: Document, route: Route, { method }: Generated): ReadonlyArray<number> => {
  const operations = document.paths[route.path.replaceAll(/:(\w+)/g, "{$1}")] ?? {}
  const operation = operations[(method === "HEAD" ? "GET" : method).toLowerCase()]
  const listed = Object.keys(operation?.responses ?? {}).map(Number)
  // 401 and 403 go before all else; odd path parameters make another path of it, or none.
  return [
    ...listed,
    401,
    404,
    405,
    429,
    ...(method === "OPTIONS" ? [204] : []),
    ...(listed.length === 0 ? [413] : [])
  ]
}

const isErrorStatus = (status: number): status is ErrorStatus => status >= 400

const check = (document: Document, route: Route, generated: Generated, received: Received) => {
  const { status, headers, text } = received
  assert.include(expected(document, route, generated), status, text)
  assert.notStrictEqual(status, 500)
  assert.match(headers.get("x-request-id") ?? "", /^[A-Za-z0-9._-]{1,128}$/)
  if (generated.method === "HEAD") assert.strictEqual(text, "")
  else if (isErrorStatus(status)) assertError({ status, headers, text, json: JSON.parse(text) }, status)
  else if (headers.get("content-type") === "application/json") assert.doesNotThrow(() => JSON.parse(text))
}

const shown = ({ method, target, headers, body }: Generated) =>
  JSON.stringify({ method, target, headers, body: Buffer.from(body).toString("latin1").slice(0, 2000) })

layer(service(), options)("whatever is sent", (it) => {
  describe("decisions 1: every response", () => {
    it.effect(
      "has a status of its route, and the error body; nothing breaks, nothing unasked is made",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const agent = yield* Effect.acquireRelease(
            Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 16 })),
            (it) => Effect.sync(() => it.destroy())
          )
          const document: Document = (yield* expectStatus(api, 200, "GET", "/openapi.json")).json
          const seed = fc.sample(fc.integer(), 1)[0] ?? 0
          const created = new Set<string>()
          yield* Effect.forEach(
            routes.flatMap((route) =>
              fc
                .sample(requestsTo(document, route, api.key), { numRuns: RUNS_PER_ROUTE, seed })
                .map((generated) => ({ route, generated }))
            ),
            ({ route, generated }) =>
              Effect.gen(function* () {
                const received = yield* send(api, agent, generated)
                check(document, route, generated, received)
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
          const ids: ReadonlyArray<string> = (yield* expectStatus(
            api,
            200,
            "GET",
            "/api/servers?ids_only=true"
          )).json
          for (const id of ids)
            assert.isTrue(created.has(id), `seed ${seed}: ${id} was made by no answered request`)
          const nodes = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          assert.strictEqual(nodes.length, 1)
          assert.strictEqual(nodes[0].drained, false)
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

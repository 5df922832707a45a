import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, connectedNode } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { becomes, create, expectStatus, power } from "../support/servers.ts"

interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
}

interface Batch {
  readonly path: string
  readonly authorization: string | undefined
  readonly text: string
}

/** A server on a free port, until the scope closes. */
const listening = (server: Server) =>
  Effect.acquireRelease(
    Effect.callback<string>((resume) => {
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo // a TCP server has no other address
        resume(Effect.succeed(`http://127.0.0.1:${port}`))
      })
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.closeAllConnections()
        server.close(() => resume(Effect.void))
      })
  )

/** An OpenTelemetry collector that keeps what it gets. */
const collector = Effect.gen(function* () {
  const batches: Array<Batch> = []
  const url = yield* listening(
    createServer((request, response) => {
      const chunks: Array<Buffer> = []
      request.on("data", (chunk) => chunks.push(chunk))
      request.on("end", () => {
        const { authorization } = request.headers
        batches.push({ path: request.url ?? "", authorization, text: Buffer.concat(chunks).toString() })
        response.writeHead(200, { "content-type": "application/json" }).end("{}")
      })
    })
  )
  /** The spans of a trace, with the service that has sent each. */
  const spansOf = (trace: string): ReadonlyArray<Span & { readonly service: string }> =>
    batches.flatMap(({ path, text }) => {
      if (path !== "/v1/traces") return []
      const [{ resource, scopeSpans }] = JSON.parse(text).resourceSpans
      const service = resource.attributes.find(({ key }: { readonly key: string }) => key === "service.name")
        .value.stringValue
      const spans: ReadonlyArray<Span> = scopeSpans[0].spans
      return spans.filter(({ traceId }) => traceId === trace).map((span) => ({ ...span, service }))
    })
  return { url, batches, spansOf }
})

const files = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": consoleServer },
      install: { script: "echo installed" }
    })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const TRACE = "0af7651916cd43dd8448eb211c80319c"
const key = { OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20of-the-collector" }

describe("docs/metrics.md: OpenTelemetry", () => {
  it.live(
    "one trace leads from the request to the online signal, over the control plane and the daemon",
    () =>
      Effect.gen(function* () {
        const { batches, spansOf, url } = yield* collector
        const { env } = yield* definitions(files)
        const otel = { OTEL_EXPORTER_OTLP_ENDPOINT: url, ...key }
        const api = yield* startService({ env: { ...alone, ...env, ...otel } })
        yield* connectedNode(api, "traced", {
          env: { ...otel, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28900-28910" }
        })
        const { json } = yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept", start: true },
          headers: { traceparent: `00-${TRACE}-b7ad6b7169203331-01` }
        })
        yield* becomes(api, json.id, "running")
        const names = yield* eventually(
          Effect.sync(() => spansOf(TRACE).map(({ name, service }) => `${service}: ${name}`)),
          (all) => all.includes("muster-node: server.start") && all.includes("muster: provision.start")
        )
        for (const name of [
          "muster: POST",
          "muster: ServerManager.create",
          "muster: place",
          "muster: commit",
          "muster: provision.install",
          "muster-node: POST /api/servers",
          "muster-node: install.script",
          "muster-node: install.instance",
          "muster: provision.start"
        ]) {
          assert.include(names, name)
        }
        const spans = spansOf(TRACE)
        const ids = new Set(spans.map(({ spanId }) => spanId))
        assert.include(
          spans.map(({ name }) => name),
          "POST /api/servers"
        )
        for (const { name, parentSpanId = "" } of spans) {
          if (parentSpanId !== "b7ad6b7169203331")
            assert.isTrue(ids.has(parentSpanId), `${name} has no parent`)
        }
        // The trace ends with the start: later requests and reports have traces of their own.
        const before = spans.length
        yield* expectStatus(api, 200, "GET", "/api/servers?q=a-secret-query")
        yield* power(api, json.id, "stop")
        yield* becomes(api, json.id, "offline")
        yield* eventually(
          Effect.sync(() =>
            batches
              .filter(({ path }) => path === "/v1/metrics")
              .map(({ text }) => text)
              .join()
          ),
          (text) => text.includes("muster_node_up") && text.includes("muster_daemon_servers")
        )
        assert.lengthOf(spansOf(TRACE), before)
        const text = batches.map((batch) => batch.text).join()
        for (const secret of [api.key, "a-secret-query", "of-the-collector"]) assert.notInclude(text, secret)
        assert.isTrue(batches.every(({ authorization }) => authorization === "Bearer of-the-collector"))
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${json.id}`)
      }).pipe(Effect.scoped)
  )

  it.live("a collector that never responds delays no request and no end of the service", () =>
    Effect.gen(function* () {
      const silent = yield* listening(createServer(() => {}))
      const { env } = yield* definitions(files)
      const api = yield* startService({ env: { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: silent } })
      const id = yield* create(api, "kept", { start: true })
      yield* becomes(api, id, "running")
      yield* eventually(
        Effect.sync(() => api.output()),
        (log) => log.includes("the collector does not respond in time")
      )
      const began = Date.now()
      yield* expectStatus(api, 200, "GET", "/api/servers")
      assert.isBelow(Date.now() - began, 5_000)
      yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
      const ended = Date.now()
      yield* api.kill("SIGTERM")
      assert.isBelow(Date.now() - ended, 10_000)
    }).pipe(Effect.scoped)
  )
})

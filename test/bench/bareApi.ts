/**
 * A plain `HttpApi` with the route of one server that is a baseline of the service: its parameters are decoded, its body
 * is encoded once, and there is nothing else. The argument is the file with the servers as JSON.
 */
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, References, Schema } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"

const servers: ReadonlyArray<{ readonly id: string }> = JSON.parse(
  readFileSync(process.argv[2] ?? "", "utf8")
)
const bodies = new Map(servers.map((server) => [server.id, JSON.stringify(server)]))

class Api extends HttpApi.make("bare").add(
  HttpApiGroup.make("servers").add(
    HttpApiEndpoint.get("get", "/api/servers/:server", {
      params: { server: Schema.NonEmptyString },
      query: {
        include: Schema.optionalKey(Schema.String),
        wait: Schema.optionalKey(Schema.Literals(["running", "offline", "installed"])),
        timeout: Schema.optionalKey(Schema.String)
      },
      success: Schema.Unknown
    })
  )
) {}

const handlers = HttpApiBuilder.group(Api, "servers", (group) =>
  group.handle("get", ({ params }) =>
    Effect.succeed(
      HttpServerResponse.text(bodies.get(params.server) ?? "", { contentType: "application/json" })
    )
  )
)

const announce = Effect.map(HttpServer.HttpServer, ({ address }) => {
  if ("port" in address) console.log(`listens on http://127.0.0.1:${address.port}`)
})

HttpRouter.serve(HttpApiBuilder.layer(Api).pipe(Layer.provide(handlers)), {
  disableLogger: true,
  disableListenLog: true
}).pipe(
  Layer.merge(Layer.effectDiscard(announce)),
  Layer.provide(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 })),
  Layer.provide(Layer.succeed(References.TracerEnabled, false)),
  Layer.launch,
  NodeRuntime.runMain
)

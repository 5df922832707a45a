import { Context, Effect, Layer } from "effect"
import { HttpServer } from "effect/http"

/** Services that a request adds to the context of the server, at most. One more would copy the whole context. */
const MOST_SERVICES = 24

/** Lets each request add its services to the context of the server without a copy of the whole. */
export const sharedRequestContext: Layer.Layer<HttpServer.HttpServer, never, HttpServer.HttpServer> =
  Layer.effect(
    HttpServer.HttpServer,
    Effect.map(HttpServer.HttpServer, ({ address, serve }) =>
      HttpServer.make({
        address,
        serve: (app, middleware) =>
          Effect.updateContext(middleware === undefined ? serve(app) : serve(app, middleware), (context) =>
            Context.makeUnsafe(context.mapUnsafe, { maxDepth: MOST_SERVICES })
          )
      })
    )
  )

/** Requests without the services of the program: copies of a hundred would take two thirds of a read's CPU time. */
import { Context, Effect, Layer, Scope } from "effect"
import { HttpServer } from "effect/http"
import { HttpApi, HttpApiBuilder } from "effect/http-api"

/** Keys of the program's own services, and of those that commands or the making of layers need. */
const program =
  /^(?:muster|~effect|effect\/(?:cli|process|sql|Layer))\/|^effect\/(?:FileSystem|Path|Terminal|ConfigProvider|http\/(?:Etag\/Generator|HttpPlatform|HttpServer|HttpRouter\/RouterConfig)|References\/CurrentStackFrame)$/

/** Services that a request adds, at most: with one more, the whole context is copied. */
const MOST_SERVICES = 24

const withoutProgram = <R>(context: Context.Context<R>): Context.Context<R> =>
  Context.makeUnsafe(new Map([...context.mapUnsafe].filter(([key]) => !program.test(key))), {
    maxDepth: MOST_SERVICES
  })

/** Starts requests without the services of the program. Handlers take these from the context in which they are made. */
export const leanRequests = Layer.effect(
  HttpServer.HttpServer,
  Effect.map(HttpServer.HttpServer, ({ address, serve }) =>
    HttpServer.make({
      address,
      serve: (app, middleware) =>
        Effect.updateContext(middleware === undefined ? serve(app) : serve(app, middleware), withoutProgram)
    })
  )
)

/** `HttpApiBuilder.group`, whose handlers run with the services of the request only. */
export const handlersOf: typeof HttpApiBuilder.group = (api, name, build) =>
  Layer.fromBuild((memoMap, scope) =>
    Effect.contextWith((context) => {
      const services = Context.omit(Scope.Scope)(context)
      const middlewares = new Set<Context.Key<unknown, unknown>>()
      HttpApi.reflect(api, {
        predicate: ({ group }) => group.identifier === name,
        onGroup: () => {},
        onEndpoint: ({ middleware }) => {
          for (const key of middleware) middlewares.add(key)
        }
      })
      // The type of `build` depends on its handlers, which stay the same.
      const made = ((handlers) => {
        const built = build(handlers)
        return Effect.isEffect(built) ? Effect.provideContext(built, services) : built
      }) as typeof build
      return Effect.setContext(
        Layer.buildWithMemoMap(HttpApiBuilder.group(api, name, made), memoMap, scope),
        Context.pick(...middlewares)(context)
      )
    })
  )

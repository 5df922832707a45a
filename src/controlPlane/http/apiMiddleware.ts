/** The middleware of the APIs. */
import { Context, Effect, Layer, Option, Schema } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerRespondable } from "effect/http"
import { type HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"
import { Authorization, Failures, Policy, ReadableServers, Writes } from "../../contract/api/middleware.ts"
import {
  DatabaseFull,
  InsufficientStorage,
  InvalidRequest,
  joinReasons,
  NotFound,
  ServerNotFound
} from "../../contract/domain/errors.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { places, reasonsOf } from "../../contract/domain/mistakes.ts"
import { CurrentPrincipal, ServerAccess } from "./Principal.ts"
import { hasMoreValues, useKnown } from "./strictRequest.ts"

/** The largest body that is searched for all reasons: of a larger one, only the first is reported. */
const LARGEST_BODY = { characters: 64 * 1024, values: 1000 }

const json = Option.liftThrowable((text: string): unknown => JSON.parse(text))

/** Returns all reasons against a body; there are none if it is valid, too large for that, or no JSON. */
const bodyReasons = Effect.fnUntraced(function* ({ payload }: HttpApiEndpoint.Top) {
  const schemas = [...payload.values()].flatMap(({ encoding, schemas }) =>
    encoding._tag === "Json" ? schemas : []
  )
  if (schemas.length === 0) return []
  const request = yield* HttpServerRequest.HttpServerRequest
  const text = yield* Effect.orElseSucceed(request.text, () => "")
  const isLarge = text.length > LARGEST_BODY.characters || hasMoreValues(text, LARGEST_BODY.values)
  const body = isLarge ? Option.none() : json(text)
  if (Option.isNone(body)) return []
  const schema = Schema.make<Schema.Codec<unknown>>(Schema.Union(schemas).ast)
  const decoded = yield* Effect.result(
    Schema.decodeUnknownEffect(schema, { errors: "all", onExcessProperty: "error" })(body.value)
  )
  return decoded._tag === "Failure" ? reasonsOf(decoded.failure.issue, "body", body.value) : []
})

/** Returns the 422 with all reasons, unless a response cannot be encoded, which is a defect. */
const invalidInput = Effect.fnUntraced(function* (
  error: Parameters<Parameters<typeof HttpApiMiddleware.layerSchemaErrorTransform>[1]>[0],
  endpoint: HttpApiEndpoint.Top
) {
  const place = places[error.kind as keyof typeof places]
  if (place === undefined) return undefined
  const first = reasonsOf(error.cause.issue, place)
  const body = yield* bodyReasons(endpoint)
  const reasons = place === "body" ? (body.length === 0 ? first : body) : [...first, ...body]
  const known = place === "query" ? first.find(({ known }) => known !== undefined)?.known : undefined
  return new InvalidRequest({
    detail: joinReasons(reasons.map(({ text }) => text)),
    ...(known === undefined ? {} : { hint: useKnown(known) })
  })
})

/** `Failures`: input that does not decode is 422. */
export const FailuresLayer = HttpApiMiddleware.layerSchemaErrorTransform(
  Failures,
  Effect.fnUntraced(function* (error, { endpoint }) {
    const invalid = yield* invalidInput(error, endpoint)
    return invalid === undefined ? yield* Effect.die(error) : yield* invalid
  })
)

/** `Authorization`: declares errors only. */
export const AuthorizationLayer = Layer.succeed(
  Authorization,
  Authorization.of((handler) => handler)
)

/** `Writes`: a full disk is 507. */
export const WritesLayer = Layer.succeed(
  Writes,
  Writes.of((handler, { endpoint }) =>
    endpoint.method === "GET"
      ? handler
      : Effect.catchIf(
          handler,
          (error): error is typeof error & DatabaseFull => error instanceof DatabaseFull,
          (error) => Effect.fail(InsufficientStorage.of(error))
        )
  )
)

/** 404: the caller may not read the server of the path, or there is none. */
const refuseUnreadable = Effect.fnUntraced(function* (access: ServerAccess["Service"]) {
  const { server } = yield* HttpRouter.params
  if (server === undefined) return undefined
  if (yield* access.mayRead(ServerId.make(server))) return undefined
  return yield* yield* access.explained(server, NotFound.server(server))
}, Effect.catch(HttpServerRespondable.toResponse))

/** Returns the response of a handler that finds no server of the path, with the end of that server. */
const explained = (access: ServerAccess["Service"], error: ServerNotFound) =>
  Effect.flatMap(HttpRouter.params, ({ server = "" }) =>
    Effect.flatMap(access.explained(server, error), HttpServerRespondable.toResponse)
  )

/** `ReadableServers`: a server that the caller may not read is 404 before the input is read. */
export const ReadableServersLayer = Layer.effect(
  ReadableServers,
  Effect.map(ServerAccess, (access) =>
    ReadableServers.of((route, { endpoint }) => {
      if (!endpoint.path.includes(":server")) return route
      const handler = Effect.catchIf(
        route,
        (error) => error instanceof ServerNotFound,
        (error) => explained(access, error)
      )
      if (Context.get(endpoint.annotations, Policy).findsServer === true) return handler
      return Effect.flatMap(CurrentPrincipal, (caller) =>
        caller?.restriction === undefined
          ? handler
          : Effect.flatMap(refuseUnreadable(access), (refusal) =>
              refusal === undefined ? handler : Effect.succeed(refusal)
            )
      )
    })
  )
)

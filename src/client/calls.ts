/** The calls of the client: one method for each route of the contract. */
import { Effect, Predicate, Record, Schema, type Types } from "effect"
import type { HttpClient } from "effect/http"
import { type HttpApi, HttpApiClient, type HttpApiEndpoint, type HttpApiGroup } from "effect/http-api"
import { ApplicationApi } from "../contract/api/ApplicationApi.ts"
import { undecodableFails } from "../contract/api/noAnswer.ts"
import type { CreationPlan } from "../contract/api/ServersGroup.ts"
import { InvalidRequest, joinReasons } from "../contract/domain/errors.ts"
import { mistakesOf, reasonsOf } from "../contract/domain/mistakes.ts"
import type { Server } from "../contract/domain/Server.ts"

type Nothing = Record<never, never>
type Endpoint = HttpApiEndpoint.ConstraintRequest
type ResponseMode = HttpApiClient.Client.ResponseMode

export type Groups = typeof ApplicationApi extends HttpApi.HttpApi<infer _Id, infer Members> ? Members : never

export type EndpointsOf<Group extends HttpApiGroup.Constraint> =
  Group["endpoints"] extends infer Endpoints extends Readonly<Record<string, Endpoint>> ? Endpoints : never

export type TopLevel = EndpointsOf<Extract<Groups, { readonly topLevel: true }>>

export type NamedGroup = Extract<Groups, { readonly topLevel: false }>

type Parts<E extends Endpoint> = Omit<
  Exclude<
    HttpApiEndpoint.ClientRequest<E["~Params"], E["~Query"], E["~Payload"], E["~Headers"], "decoded-only">,
    void
  >,
  "responseMode" | "sseOptions"
>

/** The parts that a caller may leave out: a query and headers without a required field, and a body that may be absent. */
type Optional<P> = {
  [Name in keyof P]: Name extends "query" | "headers"
    ? Nothing extends P[Name]
      ? Name
      : never
    : Name extends "payload"
      ? null extends P[Name]
        ? Name
        : never
      : never
}[keyof P]

/** The request of an endpoint; {@link Optional} parts may be left out. */
export type RequestOf<E extends Endpoint> = Types.Simplify<
  Omit<Parts<E>, Optional<Parts<E>>> & Partial<Pick<Parts<E>, Optional<Parts<E>>>>
>

/** Selects the result of a call: the decoded body, the response, or both. */
interface Mode<M extends ResponseMode> {
  readonly responseMode?: M
}

type Returned<E extends Endpoint, M extends ResponseMode> = HttpApiClient.Client.MethodReturn<
  E,
  never,
  never,
  M,
  never
>

type Call<E extends Endpoint> =
  Nothing extends RequestOf<E>
    ? <M extends ResponseMode = "decoded-only">(request?: RequestOf<E> & Mode<M>) => Returned<E, M>
    : <M extends ResponseMode = "decoded-only">(request: RequestOf<E> & Mode<M>) => Returned<E, M>

/** Every endpoint of the contract as `group.name(request)`, or as `name(request)` outside `/api`. */
export type EndpointCalls = Types.Simplify<
  {
    readonly [Group in NamedGroup as HttpApiGroup.Identifier<Group>]: {
      readonly [Name in keyof EndpointsOf<Group>]: Call<EndpointsOf<Group>[Name]>
    }
  } & { readonly [Name in keyof TopLevel]: Call<TopLevel[Name]> }
>

type AnyCall = (request?: unknown) => unknown

// The client derived from the contract has methods and groups of methods only.
const isCall = (member: unknown): member is AnyCall => Predicate.isFunction(member)

/** Applies `f` to each method of an object of methods and groups of methods. */
export const mapCalls = (calls: object, f: (call: AnyCall) => unknown): object =>
  Record.map({ ...calls }, (member: unknown) =>
    isCall(member) ? f(member) : Predicate.isObject(member) ? mapCalls(member, f) : member
  )

const complete = (request: unknown): Readonly<Record<string, unknown>> => ({
  query: {},
  headers: {},
  // No body.
  payload: null,
  ...(Predicate.isObject(request) ? request : {})
})

/** A request that the contract does not allow fails as the service would refuse it, and is not sent. */
const refused = (request: ReturnType<typeof complete>) => (failure: unknown) => {
  if (!Schema.isSchemaError(failure)) return failure
  const [{ path: [first = ""] = [] } = {}] = mistakesOf(failure.issue)
  const { headers, params, payload, query } = request
  const parts = [["path", params] as const, ["query", query] as const, ["header", headers] as const]
  const of = parts.find(([, part]) => Predicate.isObject(part) && Object.hasOwn(part, first))
  const [place, part] = of ?? (["body", payload] as const)
  const reasons = reasonsOf(failure.issue, place, part).map(({ text }) => text)
  return new InvalidRequest({ detail: joinReasons(reasons) })
}

export const makeEndpointCalls = (client: HttpClient.HttpClient): Effect.Effect<EndpointCalls> =>
  Effect.map(
    // A response that does not decode stays apart from a request that does not encode.
    HttpApiClient.makeWith(ApplicationApi, {
      httpClient: client,
      transformResponse: (decoded) => Effect.catchIf(decoded, Schema.isSchemaError, Effect.die)
    }),
    (derived) =>
      mapCalls(derived, (call) => (request: unknown) => {
        const whole = complete(request)
        const called = call(whole)
        return Effect.isEffect(called) ? undecodableFails(Effect.mapError(called, refused(whole))) : called
      }) as EndpointCalls // The same methods: the types only let a caller leave parts out.
  )

export type ServerEndpoints = EndpointsOf<Extract<NamedGroup, { readonly identifier: "servers" }>>

export type Creation = Omit<RequestOf<ServerEndpoints["create"]>, "query">

export type DryRun = Pick<Creation, "payload">

type CreationError = Effect.Error<ReturnType<EndpointCalls["servers"]["create"]>>

/** `create` is two calls here, without and with `dry_run`, so that each has one type of response. */
interface CreationCalls {
  readonly create: (request: Creation) => Effect.Effect<Server, CreationError>
  /** Returns what `create` would do; nothing is created. */
  readonly dryRun: (request: DryRun) => Effect.Effect<CreationPlan, CreationError>
}

/** Every route of the contract as `group.name(request)`, or as `name(request)` outside `/api`. */
export type Calls = Types.Simplify<
  Omit<EndpointCalls, "servers"> & {
    readonly servers: Types.Simplify<Omit<EndpointCalls["servers"], "create"> & CreationCalls>
  }
>

const isPlan = (made: Server | CreationPlan): made is CreationPlan => "candidates" in made

export const makeCalls = (client: HttpClient.HttpClient): Effect.Effect<Calls> =>
  Effect.map(makeEndpointCalls(client), (calls) => {
    const { create, ...servers } = calls.servers
    return {
      ...calls,
      servers: {
        ...servers,
        create: ({ headers = {}, payload }) =>
          Effect.flatMap(create({ headers, payload }), (made) =>
            isPlan(made) ? Effect.die("a creation has no plan") : Effect.succeed(made)
          ),
        dryRun: ({ payload }) =>
          Effect.flatMap(create({ payload, query: { dry_run: true } }), (made) =>
            isPlan(made) ? Effect.succeed(made) : Effect.die("a dry run has created a server")
          )
      }
    }
  })

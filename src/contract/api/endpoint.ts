/** Declares endpoints: the schemas of a route, its task in one line and its policy, in one object. */
import { Schema } from "effect"
import type { HttpMethod, HttpRouter } from "effect/http"
import { HttpApiEndpoint } from "effect/http-api"
import { Conflict, NodeFailure, NotFound } from "../domain/errors.ts"
import { NodeId, ServerId } from "../domain/Id.ts"
import { WebhookId } from "../domain/Webhook.ts"
import { type RoutePolicy, route } from "./middleware.ts"

type Fields = Schema.Struct.Fields
type Several = ReadonlyArray<Schema.Top>

/** The names of the parameters of a path: `:server` is `server`. */
type NameIn<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? Name | NameIn<`/${Rest}`>
  : Path extends `${string}:${infer Name}`
    ? Name
    : never

type ParamsIn<Path extends string, Known> = [NameIn<Path>] extends [never]
  ? never
  : NameIn<Path> extends keyof Known
    ? Pick<Known, NameIn<Path>>
    : never

type ErrorsIn<Path extends string, Common extends Several, Own extends Several> = [NameIn<Path>] extends [
  never
]
  ? Own
  : readonly [...Common, ...Own]

const endpoint =
  <Method extends HttpMethod.HttpMethod, Known extends Fields, const Common extends Several>(
    method: Method,
    known: Known,
    common: Common
  ) =>
  <
    const Identifier extends string,
    const Path extends HttpRouter.PathInput,
    Query extends Fields = never,
    Payload extends HttpApiEndpoint.PayloadConstraintCodecs<Method> = never,
    Headers extends Fields = never,
    const Success extends HttpApiEndpoint.SuccessConstraint = Schema.Void,
    const Errors extends Several = readonly []
  >(
    identifier: Identifier,
    path: Path,
    /** The task of the route, in one line. */
    summary: string,
    {
      errors,
      headers,
      payload,
      query,
      success,
      ...policy
    }: RoutePolicy & {
      readonly query?: Query
      readonly headers?: Headers
      readonly payload?: Payload
      readonly success?: Success
      /** Errors besides those of the group, and those that each path with a parameter has. */
      readonly errors?: Errors
    } = {}
  ) => {
    const names = [...path.matchAll(/:(\w+)/g)].map(([, name = ""]) => name)
    const params = Object.fromEntries(names.map((name) => [name, known[name]]))
    const options = {
      ...(names.length === 0 ? {} : { params }),
      ...{ query, headers, payload, success },
      error: [...(names.length === 0 ? [] : common), ...(errors ?? [])]
    }
    return HttpApiEndpoint.make(method)<
      Identifier,
      Path,
      ParamsIn<Path, Known>,
      Query,
      Payload,
      Headers,
      Success,
      ErrorsIn<Path, Common, Errors>
    >(
      identifier,
      path,
      // They are the schemas that the types above name, which the compiler cannot infer in a generic function.
      options as never
    ).annotateMerge(route(summary, policy))
  }

/** Makes the functions that declare endpoints. @param known parameters of paths @param common errors of paths with one */
export const endpoints = <Known extends Fields, const Common extends Several>(
  known: Known,
  common: Common
) => ({
  get: endpoint("GET", known, common),
  post: endpoint("POST", known, common),
  put: endpoint("PUT", known, common),
  patch: endpoint("PATCH", known, common),
  del: endpoint("DELETE", known, common)
})

const id = (what: string) => Schema.String.annotate({ description: `The id of the ${what}.` })

/** The parameters in paths of the application. */
export const pathParams = {
  backup: id("backup"),
  blueprint: id("blueprint"),
  key: id("API key"),
  mixin: id("mixin"),
  node: NodeId.annotate({ description: "The id of the node." }),
  operation: id("operation"),
  quota: Schema.String.annotate({ description: "The name of the quota." }),
  rollout: id("rollout"),
  run: id("run"),
  schedule: id("schedule"),
  server: ServerId.annotate({ description: "The id of the server." }),
  software: id("software"),
  ssh: id("SSH key"),
  target: id("target"),
  upload: Schema.String.annotate({ description: "The id of the upload, from `Location`." }),
  webhook: WebhookId.annotate({ description: "The id of the webhook." })
}

/** Endpoints of the application. A path with a parameter may name an object that does not exist. */
export const { del, get, patch, post } = endpoints(pathParams, [NotFound])

/** The errors of routes that call the node of a server. */
export const errorsOfNode = [NotFound, Conflict, NodeFailure] as const

/** Endpoints of the application that call the node of a server. */
export const onNode = endpoints(pathParams, errorsOfNode)

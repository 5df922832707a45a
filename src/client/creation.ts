import { Effect, type Types } from "effect"
import type { HttpClient } from "effect/http"
import type { CreationPlan } from "../contract/api/ServersGroup.ts"
import type { Server } from "../contract/domain/Server.ts"
import {
  type EndpointCalls,
  type EndpointsOf,
  makeEndpointCalls,
  type NamedGroup,
  type RequestOf
} from "./calls.ts"

export type ServerEndpoints = EndpointsOf<Extract<NamedGroup, { readonly identifier: "servers" }>>

export type Creation = Omit<RequestOf<ServerEndpoints["create"]>, "query">

export type DryRun = Pick<Creation, "payload">

type CreationError = Effect.Error<ReturnType<EndpointCalls["servers"]["create"]>>

/** `create` without its query, and its dry run as a call of its own: each has one type of response. */
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

/**
 * The typed client for integrators: every route of the contract as a method, errors as the classes of
 * `domain/errors.ts`.
 *
 * ```ts
 * const program = Effect.gen(function* () {
 *   const muster = yield* MusterClient
 *   const server = yield* muster.servers.create({ headers: {}, payload: { blueprint_id: "demo" } })
 * })
 * program.pipe(Effect.provide(MusterClient.layer({ baseUrl: "http://127.0.0.1:5620", key: Redacted.make("...") })))
 * ```
 */
import { Context, Effect, Layer, type Redacted } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import type { CreationPlan } from "../api/ServersGroup.ts"
import type { Server } from "../domain/Server.ts"

export { ApplicationApi } from "../api/ApplicationApi.ts"
export { CreationPlan } from "../api/ServersGroup.ts"
export { BlueprintView } from "../domain/Blueprint.ts"
export * from "../domain/errors.ts"
export { NodeId, ServerId } from "../domain/Id.ts"
export { MigrationProgress } from "../domain/Migration.ts"
export { Node, NodeDetail } from "../domain/Node.ts"
export { Overrides } from "../domain/Overrides.ts"
export { Server, ServerStats } from "../domain/Server.ts"
export { ServerEvent } from "../domain/ServerEvent.ts"
export { ServerStatus } from "../domain/ServerStatus.ts"
export { DefinitionWarning, SourceView } from "../domain/SourceView.ts"

type Routes = HttpApiClient.ForApi<typeof ApplicationApi>
type Creation = Parameters<Routes["servers"]["create"]>[0]
type Failed = Routes["servers"]["create"] extends (request: never) => Effect.Effect<unknown, infer E>
  ? E
  : never

/** `create` without its query, and its dry run as a method of its own: each has one type of response. */
const makeClient = (routes: Routes) => {
  const { create, ...servers } = routes.servers
  type Asked = Pick<Creation, "headers" | "payload">
  const isPlan = (made: Server | CreationPlan): made is CreationPlan => "candidates" in made
  return {
    ...routes,
    servers: {
      ...servers,
      create: ({ headers, payload }: Asked): Effect.Effect<Server, Failed> =>
        Effect.flatMap(create({ headers, payload, query: {} }), (made) =>
          isPlan(made) ? Effect.die("a creation has no plan") : Effect.succeed(made)
        ),
      /** Returns what `create` would do; nothing is created. */
      dryRun: ({ payload }: Pick<Asked, "payload">): Effect.Effect<CreationPlan, Failed> =>
        Effect.flatMap(create({ headers: {}, payload, query: { dry_run: "true" } }), (made) =>
          isPlan(made) ? Effect.succeed(made) : Effect.die("a dry run has created a server")
        )
    }
  }
}

/** Client of a running service. */
export class MusterClient extends Context.Service<MusterClient, ReturnType<typeof makeClient>>()(
  "muster/client/MusterClient"
) {
  /** Needs an `HttpClient`; {@link MusterClient.layer} provides that of `fetch`. */
  static readonly layerNoDeps = (options: {
    readonly baseUrl: string
    readonly key: Redacted.Redacted<string>
  }) =>
    Layer.effect(
      MusterClient,
      Effect.map(
        HttpApiClient.make(ApplicationApi, {
          baseUrl: options.baseUrl,
          transformClient: HttpClient.mapRequest(HttpClientRequest.bearerToken(options.key))
        }),
        makeClient
      )
    )

  static readonly layer = (options: { readonly baseUrl: string; readonly key: Redacted.Redacted<string> }) =>
    MusterClient.layerNoDeps(options).pipe(Layer.provide(FetchHttpClient.layer))
}

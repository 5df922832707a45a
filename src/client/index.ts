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
import { Context, Layer, type Redacted } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"

export { ApplicationApi } from "../api/ApplicationApi.ts"
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

/** Client of a running service. */
export class MusterClient extends Context.Service<
  MusterClient,
  HttpApiClient.ForApi<typeof ApplicationApi>
>()("muster/client/MusterClient") {
  /** Needs an `HttpClient`; {@link MusterClient.layer} provides that of `fetch`. */
  static readonly layerNoDeps = (options: {
    readonly baseUrl: string
    readonly key: Redacted.Redacted<string>
  }) =>
    Layer.effect(
      MusterClient,
      HttpApiClient.make(ApplicationApi, {
        baseUrl: options.baseUrl,
        transformClient: HttpClient.mapRequest(HttpClientRequest.bearerToken(options.key))
      })
    )

  static readonly layer = (options: { readonly baseUrl: string; readonly key: Redacted.Redacted<string> }) =>
    MusterClient.layerNoDeps(options).pipe(Layer.provide(FetchHttpClient.layer))
}

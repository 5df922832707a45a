import { Context, Effect, identity, Layer, type Redacted, type Scope } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { Socket } from "effect/socket"
import type { ServerId } from "../contract/domain/Id.ts"
import { type Calls, makeCalls } from "./calls.ts"
import { type Console, type ConsoleError, openConsole } from "./console.ts"
import { follow, list } from "./follow.ts"
import { accept } from "./responses.ts"
import { uploadResumable } from "./resumable.ts"
import { backupFolder, download, downloadBackup, folder, unpack, upload } from "./transfer.ts"
import { operationEnd, waitUntil } from "./waitUntil.ts"

export interface ClientOptions {
  /** Such as `http://127.0.0.1:5620`. */
  readonly baseUrl: string
  /** Left out if requests have no key, for a connection that the service trusts. */
  readonly key?: Redacted.Redacted<string>
}

const clientOf = ({ baseUrl, key }: ClientOptions) =>
  Effect.map(HttpClient.HttpClient, (client) =>
    client.pipe(
      HttpClient.mapRequest(HttpClientRequest.prependUrl(baseUrl)),
      HttpClient.mapRequest(key === undefined ? identity : HttpClientRequest.bearerToken(key)),
      HttpClient.transformResponse((sent) =>
        // Browsers would ask the service for permission to send these headers.
        Effect.provideService(sent, HttpClient.TracerPropagationEnabled, false).pipe(Effect.flatMap(accept))
      )
    )
  )

export interface MusterClientShape extends Calls {
  readonly list: ReturnType<typeof list>
  readonly follow: ReturnType<typeof follow>
  readonly waitUntil: ReturnType<typeof waitUntil>
  readonly operationEnd: ReturnType<typeof operationEnd>
  readonly console: (server: ServerId | string) => Effect.Effect<Console, ConsoleError, Scope.Scope>
  readonly download: ReturnType<typeof download>
  readonly downloadBackup: ReturnType<typeof downloadBackup>
  readonly backupFolder: ReturnType<typeof backupFolder>
  readonly folder: ReturnType<typeof folder>
  readonly unpack: ReturnType<typeof unpack>
  readonly upload: ReturnType<typeof upload>
  readonly uploadResumable: ReturnType<typeof uploadResumable>
}

/** Makes a client with the `HttpClient` and the WebSocket of its context. */
export const makeClient = Effect.fnUntraced(function* (
  options: ClientOptions
): Effect.fn.Return<MusterClientShape, never, HttpClient.HttpClient | Socket.WebSocketConstructor> {
  const http = yield* clientOf(options)
  const calls = yield* makeCalls(http)
  const constructor = yield* Socket.WebSocketConstructor
  const console = openConsole(calls, options.baseUrl)
  return {
    ...calls,
    list: list(calls),
    follow: follow(calls),
    waitUntil: waitUntil(calls),
    operationEnd: operationEnd(calls),
    console: (server) => Effect.provideService(console(server), Socket.WebSocketConstructor, constructor),
    download: download(http),
    downloadBackup: downloadBackup(http),
    backupFolder: backupFolder(calls),
    folder: folder(calls),
    unpack: unpack(http),
    upload: upload(http),
    uploadResumable: uploadResumable(http, calls)
  }
})

export const Platform = Layer.merge(
  Layer.provide(FetchHttpClient.layer, Layer.succeed(FetchHttpClient.RequestInit, { redirect: "manual" })),
  Socket.layerWebSocketConstructorGlobal
)

export class MusterClient extends Context.Service<MusterClient, MusterClientShape>()(
  "muster/client/MusterClient"
) {
  /** Needs an `HttpClient` and a `WebSocketConstructor`; {@link MusterClient.layer} provides those of the platform. */
  static readonly layerNoDeps = (options: ClientOptions) => Layer.effect(MusterClient, makeClient(options))

  static readonly layer = (options: ClientOptions): Layer.Layer<MusterClient> =>
    MusterClient.layerNoDeps(options).pipe(Layer.provide(Platform))
}

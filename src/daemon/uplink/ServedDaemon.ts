import { Context, Deferred, Effect, Layer } from "effect"
import type { DaemonServer } from "../../contract/domain/NodeMessages.ts"
import type { Daemon } from "../../contract/nodeApi/Daemon.ts"

/**
 * The daemon behind the HTTP routes. The routes start first, because the control plane calls as soon as the node is
 * registered.
 */
export class ServedDaemon extends Context.Service<
  ServedDaemon,
  {
    readonly daemon: Effect.Effect<Daemon>
    readonly servers: Effect.Effect<ReadonlyArray<DaemonServer>>
    provideDaemon(daemon: Daemon): Effect.Effect<void>
    provideServers(list: () => ReadonlyArray<DaemonServer>): Effect.Effect<void>
  }
>()("muster/daemon/ServedDaemon") {
  static readonly layer = Layer.effect(
    ServedDaemon,
    Effect.gen(function* () {
      const daemon = yield* Deferred.make<Daemon>()
      const servers = yield* Deferred.make<() => ReadonlyArray<DaemonServer>>()
      return ServedDaemon.of({
        daemon: Deferred.await(daemon),
        servers: Effect.map(Deferred.await(servers), (list) => list()),
        provideDaemon: (value) => Effect.asVoid(Deferred.succeed(daemon, value)),
        provideServers: (list) => Effect.asVoid(Deferred.succeed(servers, list))
      })
    })
  )
}

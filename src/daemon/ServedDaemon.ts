import { Context, Deferred, Effect, Layer } from "effect"
import type { DaemonServer } from "../contract/domain/NodeMessages.ts"
import type { Daemon } from "../contract/nodeApi/Daemon.ts"

const makeServedDaemon = Effect.gen(function* () {
  const daemon = yield* Deferred.make<Daemon>()
  const servers = yield* Deferred.make<() => ReadonlyArray<DaemonServer>>()
  return {
    daemon: Deferred.await(daemon),
    servers: Effect.map(Deferred.await(servers), (list) => list()),
    provideDaemon: (value: Daemon) => Effect.asVoid(Deferred.succeed(daemon, value)),
    provideServers: (list: () => ReadonlyArray<DaemonServer>) =>
      Effect.asVoid(Deferred.succeed(servers, list))
  }
})

/** The daemon behind the HTTP routes, which start first: the control plane calls as soon as the node registers. */
export class ServedDaemon extends Context.Service<ServedDaemon, Effect.Success<typeof makeServedDaemon>>()(
  "muster/daemon/ServedDaemon"
) {
  static readonly layer = Layer.effect(ServedDaemon, makeServedDaemon)
}

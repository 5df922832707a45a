/** A daemon's routes over HTTP, and clients of them. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { CircuitBreaker } from "effect/persistence"
import { DaemonHttpLayer } from "../../../../src/app/daemonHttp.ts"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import type { Daemon } from "../../../../src/contract/nodeApi/Daemon.ts"
import {
  makeDaemonCalls,
  makeRemoteDaemon,
  type RemoteTarget
} from "../../../../src/controlPlane/nodes/remote/RemoteDaemon.ts"
import { ServedDaemon } from "../../../../src/daemon/http.ts"
import { NodeToken } from "../../../../src/daemon/uplink/ControlPlaneClient.ts"
import { plain } from "../../../support/ids.ts"
import { allocations, definition } from "../../../support/samples.ts"

export const NODE = NodeId.make("n1")
export const spec = (id: string) => ({
  id: ServerId.make(id),
  definition: definition(),
  allocations: allocations(25565)
})

/** The dependencies of a daemon client, with its own circuit breaker. */
export const remote = (
  target: () => RemoteTarget | undefined,
  deadline: `${number} millis` = "60000 millis",
  refresh: Effect.Effect<void> = Effect.void,
  onUnreachable: Effect.Effect<void> = Effect.void
) =>
  Effect.gen(function* () {
    const client = yield* makeDaemonCalls
    const breaker = yield* CircuitBreaker.CircuitBreaker
    return plain(
      makeRemoteDaemon({
        node_id: NODE,
        target,
        client,
        breaker,
        deadline,
        refresh,
        onUnreachable,
        fork: Effect.runFork
      })
    )
  }).pipe(
    Effect.provide(
      Layer.mergeAll(
        NodeHttpClient.layerNodeHttp,
        CircuitBreaker.layer({
          tripPolicy: CircuitBreaker.consecutive(3),
          openDuration: "1 hour"
        }).pipe(Layer.provide(CircuitBreaker.layerStoreMemory()))
      )
    )
  )

/** A daemon's routes over `daemon`, with the token `secret`. */
export const serve = Effect.fnUntraced(function* (daemon: Daemon) {
  const context = yield* Layer.build(
    DaemonHttpLayer({ host: "127.0.0.1", port: 0 }).pipe(
      Layer.provideMerge(Layer.mergeAll(NodeToken.layer, ServedDaemon.layer)),
      Layer.provide(NodeServices.layer)
    )
  )
  return yield* Effect.gen(function* () {
    const token = yield* NodeToken
    const served = yield* ServedDaemon
    const { address } = yield* HttpServer.HttpServer
    token.set("secret")
    yield* served.provideDaemon(daemon)
    yield* served.provideServers(() => [])
    return { url: `http://127.0.0.1:${"port" in address ? address.port : 0}`, token }
  }).pipe(Effect.provideContext(context))
})

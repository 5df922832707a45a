import { Context, Effect, Layer, Option, Stream } from "effect"
import type { InvalidRequest, Unavailable } from "../domain/errors.ts"
import type { DaemonServer, Registration, RegistrationAnswer } from "../domain/NodeMessages.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { MoveRepo } from "../store/MoveRepo.ts"
import { Store } from "../store/Store.ts"
import { makeKeyedMutex } from "./KeyedMutex.ts"
import { isNothing, ofView } from "./outcome.ts"
import { Provisioner } from "./Provisioner.ts"
import { untilTheDatabaseIsBack } from "./retries.ts"
import { ServerIndex } from "./ServerIndex.ts"
import { ServerLifecycle } from "./ServerLifecycle.ts"

/** Views of one registration that are taken over at a time; they share the commits of the store. */
const CONCURRENCY = 64

/**
 * Keeps records and nodes in step when nodes come and go (node-protocol, "When something breaks"): one that
 * registers says what it has; the servers of one that is silent are `unknown`; those of one that is lost, and
 * that are not saved, are given up.
 */
export class Reconciler extends Context.Service<
  Reconciler,
  {
    /**
     * Registers a node and takes over what it says of its servers. `delete` of the answer names those that have no
     * record here any more.
     */
    register(registration: Registration): Effect.Effect<RegistrationAnswer, InvalidRequest | Unavailable>
  }
>()("muster/servers/Reconciler") {
  static readonly layer = Layer.effect(
    Reconciler,
    Effect.gen(function* () {
      const index = yield* ServerIndex
      const moves = yield* MoveRepo
      const store = yield* Store
      const lifecycle = yield* ServerLifecycle
      const provisioner = yield* Provisioner
      const registry = yield* NodeRegistry
      /** A registration and the news of the same node's coming and going are dealt with one after another. */
      const nodes = makeKeyedMutex()

      const register = Effect.fn("Reconciler.register")(function* (registration: Registration) {
        const node_id = registration.id
        const listed = registration.servers.map((server) => server.id)
        // The reports of a new boot are let in once it is registered: one that is applied after this is newer than
        // the list. Those of the same boot may have been all the time: then the list proves nothing.
        const sameBoot = yield* Effect.isSuccess(registry.checkBoot(node_id, registration.boot_id))
        const sequences = yield* lifecycle.sequences(node_id, listed)
        const { token } = yield* registry.register(registration)
        const takeOver = Effect.fnUntraced(function* (view: DaemonServer) {
          const sequence = sequences.get(view.id)
          const record = Option.getOrUndefined(yield* index.find(view.id))
          if (sequence === undefined || (record !== undefined && isNothing(ofView(record, view)))) return
          yield* sameBoot ? provisioner.verify(view.id) : lifecycle.observe(node_id, view, sequence)
        })
        yield* Effect.forEach(registration.servers, takeOver, { concurrency: CONCURRENCY, discard: true })
        const has = new Set(listed)
        for (const record of yield* index.onNode(node_id)) {
          if (!has.has(record.id)) yield* provisioner.verify(record.id)
        }
        yield* provisioner.wakeNode(node_id)
        const kept = yield* store.read(moves.kept(node_id, listed))
        return { token, delete: listed.filter((id) => !kept.has(id)) }
      })

      const lost = Effect.fnUntraced(function* (node_id: string) {
        if (registry.isConnected(node_id)) return
        const records = yield* index.onNode(node_id)
        const ids = records.filter((record) => record.status !== "unknown").map((record) => record.id)
        if (ids.length === 0) return
        yield* Effect.logWarning(`node ${node_id} is silent: ${ids.length} servers are unknown`)
        yield* lifecycle.silent(ids)
      })

      const givenUp = Effect.fnUntraced(function* (node_id: string) {
        if (registry.isConnected(node_id)) return
        const records = yield* index.onNode(node_id)
        const ids = records.filter((record) => !record.definition.save).map((record) => record.id)
        if (ids.length === 0) return
        yield* Effect.logWarning(
          `node ${node_id} is lost: ${ids.length} servers that are not saved are given up`
        )
        yield* lifecycle.giveUp(ids)
      })

      yield* registry.changes.pipe(
        Stream.runForEach(({ node_id, kind }) => {
          const work =
            kind === "connected"
              ? provisioner.wakeNode(node_id)
              : kind === "lost"
                ? lost(node_id)
                : givenUp(node_id)
          return work.pipe(
            Effect.tapError((error) => Effect.logWarning(`node ${node_id}, ${kind}: ${error.detail}`)),
            Effect.retry(untilTheDatabaseIsBack),
            nodes.withLock(node_id),
            Effect.catchCause((cause) => Effect.logError(`node ${node_id}, ${kind}: given up`, cause))
          )
        }),
        Effect.forkScoped({ startImmediately: true })
      )

      return Reconciler.of({
        register: (registration) => nodes.withLock(registration.id)(register(registration))
      })
    })
  )
}

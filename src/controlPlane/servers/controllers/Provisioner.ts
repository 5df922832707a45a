import { Context, type Duration, Effect, Layer, Schedule } from "effect"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { MOST_CREATIONS } from "../../../contract/domain/NodeMessages.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { backoff } from "../../../shared/work/backoff.ts"
import { makeKeyedLock } from "../../../shared/work/KeyedLock.ts"
import { makeWorkQueue } from "../../../shared/work/WorkQueue.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { CreationPriority } from "../state/CreationPriority.ts"
import { ServerLocks } from "../state/ServerLocks.ts"
import { makeProvisionStep, needsAction } from "./provisionStep.ts"

export interface ProvisionerOptions {
  readonly callsPerNode: number
  /** Delay before the first repetition of a call, doubled up to `retryCap`. */
  readonly retryFrom: Duration.Input
  readonly retryCap: Duration.Input
}

/** Installations at a time on the embedded node, which must not block the service. */
const EMBEDDED_INSTALLS = 8
/** Installations at a time on another node: as many as two messages have. */
const INSTALLS = 2 * MOST_CREATIONS
/** Pause between two reads of pending removals. A removal in both lasts longer than any call: it was interrupted. */
const REMOVALS = "15 seconds"

/**
 * Makes nodes match the records of their servers, on the leader: installs, starts, removes and verifies. The records
 * are its only state, and each call can be repeated.
 */
export class Provisioner extends Context.Service<
  Provisioner,
  {
    /** Works on the servers of a node that connects, or is reachable again. */
    wakeNode(node_id: NodeId): Effect.Effect<void>
    readonly active: Effect.Effect<number>
  }
>()("muster/servers/Provisioner") {
  static readonly layer = (options: ProvisionerOptions) =>
    Layer.effect(
      Provisioner,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const leadership = yield* Leadership
        const index = yield* ServerIndex
        const locks = yield* ServerLocks
        const priority = yield* CreationPriority
        const registry = yield* NodeRegistry
        const servers = yield* ServerRepo
        const store = yield* Store
        const { actionFor, removals, step, suspects } = yield* makeProvisionStep
        const installs = makeKeyedLock<NodeId>(INSTALLS)
        const embeddedInstalls = makeKeyedLock<NodeId>(EMBEDDED_INSTALLS)
        const installsOf = (node_id: NodeId) => (daemons.isAttached(node_id) ? embeddedInstalls : installs)
        const calls = makeKeyedLock<NodeId>(options.callsPerNode)

        const pending = (records: ReadonlyArray<ServerRecord>) =>
          records
            .filter((record) => registry.isConnected(record.node_id) && actionFor(record) !== "nothing")
            .map(({ id }) => id)

        const queue = yield* makeWorkQueue({
          name: "provisioning",
          fields: (server_id) => ({ server_id }),
          step,
          backoff: backoff({ first: options.retryFrom, longest: options.retryCap }),
          leadership,
          // The server's lock comes last, so that a removal waits only for calls that are permitted already.
          permit: (id: ServerId) => (effect) =>
            Effect.suspend(() => {
              const locked = locks.withLock(id)(effect)
              const record = index.get(id)
              if (record === undefined) return locked
              const { node_id } = record
              return actionFor(record) === "install"
                ? Effect.andThen(priority.turn, installsOf(node_id).withLock(node_id)(locked))
                : calls.withLock(node_id)(locked)
            }),
          resume: Effect.gen(function* () {
            suspects.clear()
            removals.clear()
            for (const id of yield* store.read(servers.removing)) removals.add(id)
            for (const id of yield* store.read(servers.suspected)) suspects.add(id)
            return new Set([...removals, ...suspects, ...pending([...index.all()])])
          })
        })

        /** Whether a server needs an action by its record. Work that waits or runs is woken in any case. */
        const mayNeedWork = (id: ServerId) => {
          const record = index.get(id)
          return queue.has(id) || record === undefined || actionFor(record) !== "nothing"
        }

        yield* followChanges("controllers", (change) => {
          if (change.topic === "server:suspect") {
            if (queue.add(change.server_id)) suspects.add(change.server_id)
          } else if (needsAction(change) && mayNeedWork(change.server_id)) queue.add(change.server_id)
        })

        let before: ReadonlyArray<ServerId> = []
        const addInterruptedRemovals = Effect.gen(function* () {
          const now = yield* store.read(servers.removing)
          for (const id of now) {
            if (!before.includes(id) || removals.has(id)) continue
            removals.add(id)
            queue.add(id)
          }
          before = now
        })
        yield* leadership.whileLeader(
          Effect.asVoid(Effect.repeat(Effect.ignore(addInterruptedRemovals), Schedule.spaced(REMOVALS)))
        )

        return Provisioner.of({
          wakeNode: (node_id) =>
            Effect.map(index.onNode(node_id), (records) => pending(records).forEach(queue.add)),
          active: Effect.sync(queue.size)
        })
      })
    )
}

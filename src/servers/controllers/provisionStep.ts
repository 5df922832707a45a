import { Effect, Option } from "effect"
import type { Daemon, DaemonError } from "../../api/Daemon.ts"
import type { Unavailable } from "../../domain/errors.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { ServerLifecycle } from "../records/ServerLifecycle.ts"
import { isFinished } from "../records/transitions.ts"
import { type Action, nextAction } from "./nextAction.ts"

/** A start or a creation that a node fails to carry out, for want of room for one, is given up after this many calls. */
const ATTEMPTS = 5
/** Seconds that a stop may take; a start has none. */
const NO_WAIT = 0

/**
 * What a server needs of its node, and the one call that gets it: its record says it, and what is known of it beside:
 * that its node may have lost it, or that it is being removed.
 */
export const makeProvisionStep = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const registry = yield* NodeRegistry
  const servers = yield* ServerRepo
  const store = yield* Store

  const suspects = new Set<string>()
  /** Removals that whoever has begun them does not end. */
  const removals = new Set<string>()

  const call = <A, E>(node_id: string, use: (daemon: Daemon) => Effect.Effect<A, E>) =>
    Effect.flatMap(daemons.of(node_id), use)

  /** True: the node has it, and its record may still say otherwise when the reports that are under way have come. */
  const install = Effect.fnUntraced(function* (record: ServerRecord) {
    const { id, node_id, definition, allocations } = record
    const sequence = (yield* lifecycle.sequences(node_id, [id])).get(id)
    if (sequence === undefined) return false
    const move = yield* index.moveOf(id)
    const arrival = move?.phase === "arriving" ? { arrival: move.arrival } : {}
    const view = yield* call(node_id, (daemon) =>
      daemon.create({ id, definition, allocations, last_sequence: sequence, ...arrival })
    )
    return !(yield* lifecycle.observe(node_id, view, sequence)) && isFinished(view.install)
  })

  const verify = Effect.fnUntraced(function* (record: ServerRecord) {
    const status = yield* Effect.result(call(record.node_id, (daemon) => daemon.status(record.id)))
    if (status._tag === "Success") return yield* install(record)
    if (status.failure._tag !== "DaemonRefused" || status.failure.status !== 404) {
      return yield* Effect.fail(status.failure)
    }
    yield* lifecycle.missing(record.node_id, record.id)
    return false
  })

  const start = Effect.fnUntraced(function* (record: ServerRecord) {
    // It may have been stopped by another replica.
    const [now] = yield* store.read(servers.find([record.id]))
    if (now?.start_pending !== true || now.node_id !== record.node_id) return false
    yield* call(record.node_id, (daemon) => daemon.power(record.id, "start", NO_WAIT))
    return false
  })

  const remove = Effect.fnUntraced(function* (record: ServerRecord) {
    yield* call(record.node_id, (daemon) => daemon.remove(record.id))
    yield* mayUseReserve(lifecycle.remove(record.id, record.node_id))
    removals.delete(record.id)
    return false
  })

  /** What to do about a refusal; true: try again. */
  const refused = Effect.fnUntraced(function* (
    record: ServerRecord,
    need: Action | "remove",
    attempt: number,
    error: Extract<DaemonError, { readonly _tag: "DaemonRefused" }>
  ): Effect.fn.Return<boolean, Unavailable> {
    // Somebody has begun to remove it: it is gone soon, or was not to be removed after all.
    const isBeingRemoved = need === "install" && error.status === 409
    yield* Effect.logWithLevel(isBeingRemoved ? "Debug" : "Warn")(
      `node ${record.node_id} refuses to ${need} ${record.id}: ${error.detail}`
    )
    // What comes from another node has been installed: it waits for its place.
    const isGivenUp = error.status === 500 && attempt >= ATTEMPTS && !isFinished(record.install)
    if (need === "install" && (error.status === 422 || isGivenUp)) {
      yield* lifecycle.refuseInstall(record.id, error.detail)
      return false
    }
    if (need === "start" && error.status === 404) suspects.add(record.id)
    else if (need === "start" && (error.status !== 500 || attempt >= ATTEMPTS)) {
      yield* lifecycle.forgetStart(record.id)
      return false
    }
    return true
  })

  const actionFor = (record: ServerRecord): Action | "remove" =>
    removals.has(record.id) ? "remove" : nextAction(record, suspects.has(record.id))

  const isToStart = (id: string) =>
    Effect.map(index.find(id), (now) => Option.isSome(now) && actionFor(now.value) === "start")

  /** One look at a server; true: try again. */
  const step = Effect.fnUntraced(function* (id: string, attempt: number) {
    const record = Option.getOrUndefined(yield* index.find(id))
    if (record === undefined) {
      suspects.delete(id)
      removals.delete(id)
      return false
    }
    // One whose node is away is woken when the node is back.
    if (!registry.isConnected(record.node_id)) return false
    const need = actionFor(record)
    if (need === "nothing") return false
    const works = { install, start, verify, remove }
    // A suspicion that comes up from here on is another one.
    const isSuspected = need === "verify" && suspects.delete(id)
    const suspectAgain = Effect.sync(() => {
      if (isSuspected) suspects.add(id)
    })
    return yield* works[need](record).pipe(
      Effect.tap((again) => (again ? suspectAgain : isSuspected ? lifecycle.verified(id) : Effect.void)),
      Effect.onError(() => suspectAgain),
      // What woke it for its start may have come while it was to be asked for.
      Effect.flatMap((again) => (again || need !== "verify" ? Effect.succeed(again) : isToStart(id))),
      Effect.catchTag("DaemonRefused", (error) => refused(record, need, attempt, error))
    )
  })

  return { actionFor, removals, step, suspects } as const
})

import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { Change, ServerChange } from "../../../contract/domain/Journal.ts"
import { MOST_CREATIONS } from "../../../contract/domain/NodeMessages.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import type { Daemon, DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { continueTrace, inSpan } from "../../../shared/observability/trace.ts"
import { backoff } from "../../../shared/work/backoff.ts"
import { makeKeyedLock } from "../../../shared/work/KeyedLock.ts"
import { makeWorkQueue, type StepOutcome } from "../../../shared/work/WorkQueue.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeDeliver } from "../state/nodeCalls.ts"
import { logFields } from "../state/recordChanges.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { CreationPriority, ServerLocks, ServersOptions } from "../state/ServersOptions.ts"
import { isFinished } from "../state/transitions.ts"

/**
 * - `remove` continue a removal
 * - `verify` ask the node whether it has the server, and what it is
 * - `define` send the changed definition
 * - `stop`   send a stop that was accepted while the node was away
 */
type Action = "install" | "start" | "verify" | "define" | "stop" | "remove"

const needsAction = (change: Change): change is ServerChange =>
  change.topic === "server:created" ||
  change.topic === "server:changed" ||
  (change.topic === "server:start-pending" && change.payload) ||
  (change.topic === "server:run" && change.payload?.undelivered === true) ||
  (change.topic === "server:install" &&
    (change.payload.phase === "pending" || change.payload.phase === "ready"))

/** Marks of servers that the database has beside their records. */
interface Pending {
  /** Servers that their nodes may have lost. */
  readonly suspects: Set<ServerId>
  /** Servers whose removal was interrupted. */
  readonly removals: Set<ServerId>
}

/** Returns the next call that a server needs, if it needs one. */
const actionFor = (record: ServerRecord, { removals, suspects }: Pending): Action | undefined => {
  if (removals.has(record.id)) return "remove"
  if (!isFinished(record.install)) return "install"
  if (suspects.has(record.id) || record.status === "unknown") return "verify"
  if (record.run?.undelivered === true) return "stop"
  if (record.redefinition?.delivered === false) return "define"
  const starts = record.start_pending && record.status === "offline" && record.install.phase === "ready"
  return starts ? "start" : undefined
}

/** Calls after which a start or an installation fails if the node cannot carry it out, as with a full disk. */
const ATTEMPTS = 5
const NO_WAIT = 0

/** Time after its creation in which work on a server has the creation's trace, in ms. */
const TRACE_LIFETIME = 60 * 60 * 1000

/** The calls of a server's node by action. */
const makeCalls = Effect.fnUntraced(function* (pending: Pending) {
  const { removals, suspects } = pending
  const daemons = yield* DaemonClient
  const deliver = yield* makeDeliver
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const servers = yield* ServerRepo
  const store = yield* Store

  const call = <A, E>(node_id: NodeId, use: (daemon: Daemon) => Effect.Effect<A, E>) =>
    Effect.flatMap(daemons.of(node_id), use)

  /** Returns "again" for a server to start, as its wake-up may have come during the call. */
  const orStart = (id: ServerId, outcome: StepOutcome): StepOutcome => {
    const now = index.get(id)
    return now !== undefined && actionFor(now, pending) === "start" ? "again" : outcome
  }

  /** Returns "again" after the installation, until the reports under way have changed the record. */
  const install = Effect.fnUntraced(function* (record: ServerRecord) {
    const sent = yield* deliver(record)
    if (sent === undefined) return "done"
    return !sent.isTaken && isFinished(sent.view.install) ? "again" : "done"
  })

  const verify = Effect.fnUntraced(function* (record: ServerRecord) {
    const status = yield* Effect.result(call(record.node_id, (daemon) => daemon.status(record.id)))
    if (status._tag === "Success") return yield* install(record)
    if (status.failure._tag !== "DaemonRefused" || status.failure.status !== 404) {
      return yield* Effect.fail(status.failure)
    }
    yield* lifecycle.missing(record.node_id, record.id)
    return "done"
  })

  return {
    install,
    start: Effect.fnUntraced(function* (record: ServerRecord) {
      const [now] = yield* store.read(servers.find([record.id]))
      if (now?.start_pending === true && now.node_id === record.node_id) {
        yield* call(record.node_id, (daemon) => daemon.power(record.id, "start", NO_WAIT))
      }
      return "done" as const
    }),
    /** Verifies a suspect. A suspicion during the call is a new one. */
    verify: Effect.fnUntraced(function* (record: ServerRecord) {
      const { id } = record
      const isSuspect = suspects.delete(id)
      const suspectAgain = Effect.sync(() => {
        if (isSuspect) suspects.add(id)
      })
      const outcome = yield* Effect.onError(
        Effect.tap(verify(record), (outcome) =>
          isSuspect && outcome === "done" ? lifecycle.verified(id) : Effect.void
        ),
        () => suspectAgain
      )
      if (outcome === "again") yield* suspectAgain
      return orStart(id, outcome)
    }),
    define: Effect.fnUntraced(function* (record: ServerRecord) {
      yield* deliver(record)
      return orStart(record.id, "done")
    }),
    stop: Effect.fnUntraced(function* ({ id }: ServerRecord) {
      const record = index.get(id)
      if (record?.run?.undelivered !== true) return "done"
      const { definition, node_id, run } = record
      yield* call(node_id, (daemon) => daemon.power(id, "stop", stopTimeoutOf(definition), run?.stopped_by))
      yield* lifecycle.stopDelivered(id)
      return "again"
    }),
    remove: Effect.fnUntraced(function* (record: ServerRecord) {
      const { id, node_id } = record
      const kept = yield* lifecycle.keeps(id)
      // Another process has ended the removal, or given it up: the files may be kept, or in use again.
      if (kept === undefined) {
        removals.delete(id)
        return "again"
      }
      yield* call(node_id, (daemon) => daemon.remove(id, kept ? { kept } : {}))
      const isRemoved = yield* mayUseReserve(lifecycle.remove(id, node_id))
      removals.delete(id)
      if (isRemoved) return "done"
      suspects.add(id)
      return "again"
    })
  } satisfies Record<Action, Work>
})
type Work = (record: ServerRecord) => Effect.Effect<StepOutcome, DaemonError | Unavailable>

const makeStep = Effect.fnUntraced(function* (pending: Pending) {
  const { removals, suspects } = pending
  const calls = yield* makeCalls(pending)
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const registry = yield* NodeRegistry

  const refused = Effect.fnUntraced(function* (
    { id, install, node_id }: ServerRecord,
    action: Action,
    attempt: number,
    error: Extract<DaemonError, { readonly _tag: "DaemonRefused" }>
  ): Effect.fn.Return<StepOutcome, Unavailable> {
    const { detail, status } = error
    // A removal has begun on the node: the server is gone soon, or the removal is given up.
    const isBeingRemoved = action === "install" && status === 409
    yield* Effect.logWithLevel(isBeingRemoved ? "Debug" : "Warn")(
      `node ${node_id} refuses to ${action} ${id}: ${detail}`
    )
    // An installed server that is migrated here waits for its place instead.
    const isGivenUp = action === "install" && status === 500 && attempt >= ATTEMPTS && !isFinished(install)
    if (((action === "install" || action === "define") && status === 422) || isGivenUp) {
      yield* lifecycle.refuseInstall(id, detail)
      return "done"
    }
    if (action === "stop" && status !== 500 && status !== 404) yield* lifecycle.stopDelivered(id)
    if ((action === "start" || action === "stop") && status === 404) suspects.add(id)
    else if (action === "start" && (status !== 500 || attempt >= ATTEMPTS)) {
      yield* lifecycle.forgetStart(id, error)
      return "done"
    }
    return "again"
  })

  const traceOf = Effect.fnUntraced(function* ({ created_at, trace }: ServerRecord) {
    const age = (yield* Clock.currentTimeMillis) - Date.parse(created_at)
    return age < TRACE_LIFETIME ? trace : undefined
  })

  return Effect.fnUntraced(function* (
    id: ServerId,
    attempt: number
  ): Effect.fn.Return<StepOutcome, DaemonError | Unavailable> {
    const record = index.get(id)
    if (record === undefined) {
      suspects.delete(id)
      removals.delete(id)
      return "done"
    }
    const action = registry.isConnected(record.node_id) ? actionFor(record, pending) : undefined
    if (action === undefined) return "done"
    return yield* calls[action](record).pipe(
      inSpan(`provision.${action}`, { attributes: logFields(record) }),
      continueTrace(yield* traceOf(record)),
      Effect.catchTag("DaemonRefused", (error) => refused(record, action, attempt, error))
    )
  })
})

/** Installations at a time on the embedded node: with 8, reads beside creations take half as long again. */
const EMBEDDED_INSTALLS = 4
/** Installations at a time on another node: as many as two messages have. */
const INSTALLS = 2 * MOST_CREATIONS
/** Pause between two reads of pending removals. A removal in both lasts longer than any call: it was interrupted. */
const REMOVALS = "15 seconds"

/**
 * Makes nodes match the records of their servers, on the leader: installs, starts, removes and verifies. The records
 * are its only state, and each call can be repeated.
 */
export class Provisioner extends Context.Service<Provisioner>()("muster/servers/Provisioner", {
  make: Effect.gen(function* () {
    const daemons = yield* DaemonClient
    const leadership = yield* Leadership
    const index = yield* ServerIndex
    const locks = yield* ServerLocks
    const options = yield* ServersOptions
    const priority = yield* CreationPriority
    const registry = yield* NodeRegistry
    const servers = yield* ServerRepo
    const store = yield* Store
    const pending: Pending = { suspects: new Set(), removals: new Set() }
    const { removals, suspects } = pending
    const installs = makeKeyedLock<NodeId>(INSTALLS)
    const embeddedInstalls = makeKeyedLock<NodeId>(EMBEDDED_INSTALLS)
    const installsOf = (node_id: NodeId) => (daemons.isAttached(node_id) ? embeddedInstalls : installs)
    const calls = makeKeyedLock<NodeId>(options.callsPerNode)

    const idle = (records: ReadonlyArray<ServerRecord>) =>
      records
        .filter((record) => registry.isConnected(record.node_id) && actionFor(record, pending) !== undefined)
        .map(({ id }) => id)

    const queue = yield* makeWorkQueue({
      name: "provisioning",
      fields: (server_id) => ({ server_id }),
      step: yield* makeStep(pending),
      backoff: backoff({ first: options.retryFrom, longest: options.retryCap }),
      leadership,
      // The server's lock comes last, so that a removal waits only for calls that are permitted already.
      permit: (id: ServerId) => (effect) =>
        Effect.suspend(() => {
          const locked = locks.withLock(id)(effect)
          const record = index.get(id)
          if (record === undefined) return locked
          const { node_id } = record
          return actionFor(record, pending) === "install"
            ? Effect.andThen(priority.turn, installsOf(node_id).withLock(node_id)(locked))
            : calls.withLock(node_id)(locked)
        }),
      resume: Effect.gen(function* () {
        suspects.clear()
        removals.clear()
        for (const id of yield* store.read(servers.removing)) removals.add(id)
        for (const id of yield* store.read(servers.suspected)) suspects.add(id)
        return new Set([...removals, ...suspects, ...idle([...index.all()])])
      })
    })

    /** Whether a server needs an action by its record. Work that waits or runs is woken in any case. */
    const mayNeedWork = (id: ServerId) => {
      const record = index.get(id)
      return queue.has(id) || record === undefined || actionFor(record, pending) !== undefined
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

    return {
      /** Works on the servers of a node that connects, or is reachable again. */
      wakeNode: (node_id: NodeId) =>
        Effect.map(index.onNode(node_id), (records) => idle(records).forEach(queue.add)),
      active: Effect.sync(queue.size)
    }
  })
}) {
  static readonly layer = Layer.effect(Provisioner, Provisioner.make)
}

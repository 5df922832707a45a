import { Context, Effect, Layer, Stream } from "effect"
import { type InvalidRequest, named, type Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type {
  DaemonServer,
  Registration,
  RegistrationAnswer,
  UnknownServer
} from "../../../contract/domain/NodeMessages.ts"
import { makeKeyedLock } from "../../../shared/work/KeyedLock.ts"
import { pause } from "../../../shared/work/slices.ts"
import { makeWorkQueue } from "../../../shared/work/WorkQueue.ts"
import { type NodeChange, NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { KeptServerRepo } from "../../store/repos/DeletedServerRepo.ts"
import { MigrationRepo, type Standing } from "../../store/repos/MigrationRepo.ts"
import { NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { databaseRetrySchedule } from "../../store/sql/sqlErrors.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeReleaseHeld } from "../migrations/migrateStep.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { ServerLocks } from "../state/ServersOptions.ts"
import { changesNothing, isFinished, onSnapshot } from "../state/transitions.ts"
import { Provisioner } from "./Provisioner.ts"

/** Orphans on a node: instances of deleted servers, and instances without a record. */

const MOST = 10_000
const NAMED = 5

/** Keeps confirmed removals in memory, as a node's snapshot may be older. The store has unconfirmed ones. */
const recentRemovals = Effect.gen(function* () {
  const keys = new Set<string>()
  const left = (server_id: ServerId, node_id: NodeId) => `${server_id} ${node_id}`
  const remember = (key: string) => {
    keys.delete(key)
    keys.add(key)
    for (const oldest of keys) {
      if (keys.size <= MOST) break
      keys.delete(oldest)
    }
  }
  yield* followChanges("read-model", (change) => {
    if (change.topic === "deleted") remember(change.server_id)
    if (change.topic === "server:left") remember(left(change.server_id, change.payload))
  })
  return {
    isDeleted: (server_id: ServerId) => keys.has(server_id),
    /** Whether a node had to delete its files of a server. */
    hasLeft: (server_id: ServerId, node_id: NodeId) => keys.has(left(server_id, node_id))
  }
})

/** Sorts a node's orphans for its registration's answer, without files of finished migrations. */
const sortOrphans = (options: {
  readonly node_id: NodeId
  readonly listed: ReadonlyArray<ServerId>
  /** Deleted servers whose files the node keeps. */
  readonly kept: ReadonlyArray<ServerId>
  readonly standings: ReadonlyMap<ServerId, Standing>
  readonly removals: Effect.Success<typeof recentRemovals>
}) => {
  const { kept, listed, node_id, removals, standings } = options
  const deleted: Array<ServerId> = []
  const unknown: Array<UnknownServer> = []
  // The files of a deleted server that the node keeps go only by a pending deletion.
  const isDeleted = (id: ServerId) => removals.isDeleted(id) && !kept.includes(id)
  for (const id of [...listed, ...kept]) {
    const standing = standings.get(id)
    const elsewhere = standing?.node_id ?? undefined
    if (standing?.kept === true) continue
    if (elsewhere === undefined && (standing?.owed === true || isDeleted(id))) deleted.push(id)
    else if (elsewhere === undefined) unknown.push({ id })
    else if (standing?.owed !== true && !removals.hasLeft(id, node_id))
      unknown.push({ id, node_id: elsewhere })
  }
  return { delete: deleted, unknown }
}

const warnOfUnknown = (node_id: NodeId, unknown: ReadonlyArray<UnknownServer>): Effect.Effect<void> => {
  if (unknown.length === 0) return Effect.void
  const names = unknown.map(({ id, node_id: elsewhere }) =>
    elsewhere === undefined ? id : `${id} (on ${elsewhere} instead)`
  )
  return Effect.logWarning(
    `the database does not have these servers of a node: ${named(names, NAMED)}; the node ends them and keeps the files of those that are saved`
  ).pipe(Effect.annotateLogs({ node_id }))
}

/** Servers of one snapshot that are reconciled at a time and share the commits of the store. */
const CONCURRENCY = 64

/** Delay of the leader's calls to a connected node: another replica may still reconcile its snapshot. */
const REGISTRATION = "1 second"

/** Unknown servers of one node that make it register. Its next registration names the others. */
const MENTIONED = 10_000

/**
 * Reconciles the deleted servers of a node with its snapshot. Returns those that it must still keep, and the listed and
 * kept ones that are not on record as kept there.
 */
const makeReconcileKept = Effect.gen(function* () {
  const locks = yield* ServerLocks
  const repo = yield* KeptServerRepo
  const store = yield* Store

  return Effect.fnUntraced(function* ({ id: node_id, kept }: Registration, listed: ReadonlyArray<ServerId>) {
    const onRecord = new Set(yield* store.read(repo.idsOn(node_id)))
    // Under the lock: an undelete that has the server back on its node ends first.
    const keep = yield* Effect.filter(
      listed.filter((id) => onRecord.has(id)),
      (id) => locks.withLock(id)(Effect.map(store.read(repo.find(id)), (found) => found !== undefined))
    )
    const has = new Set([...listed, ...(kept ?? [])])
    const gone = kept === undefined ? [] : [...onRecord].filter((id) => !has.has(id))
    if (gone.length > 0) {
      yield* Effect.logWarning(
        `the node has removed the files of deleted servers: ${named(gone, NAMED)}`
      ).pipe(Effect.annotateLogs({ node_id }))
      yield* store.write(Effect.forEach(gone, repo.remove, { discard: true }))
    }
    return {
      keep,
      kept: (kept ?? []).filter((id) => !onRecord.has(id)),
      live: listed.filter((id) => !keep.includes(id))
    }
  })
})

/** Registers nodes and reconciles the records with their snapshots. */
const makeRegister = Effect.gen(function* () {
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const migrations = yield* MigrationRepo
  const provisioner = yield* Provisioner
  const registry = yield* NodeRegistry
  const releaseHeld = yield* makeReleaseHeld
  const reconcileKept = yield* makeReconcileKept
  const removals = yield* recentRemovals
  const store = yield* Store

  const mentioned = new Map<NodeId, { readonly boot_id: string; readonly servers: Set<ServerId> }>()
  const isNews = (node_id: NodeId, boot_id: string, server_id: ServerId) => {
    const before = mentioned.get(node_id)
    const { servers } = before?.boot_id === boot_id ? before : { servers: new Set<ServerId>() }
    mentioned.set(node_id, { boot_id, servers })
    if (servers.has(server_id) || servers.size >= MENTIONED) return false
    servers.add(server_id)
    return true
  }

  const register = Effect.fn("NodeReconciler.register")(function* (registration: Registration) {
    const node_id = registration.id
    const views = new Map(registration.servers.map((view) => [view.id, view]))
    const listed = [...views.keys()]
    // Reports of a new boot come after its registration, so each is newer than the snapshot. Reports of the
    // present boot may be earlier: then the snapshot proves nothing.
    const sameBoot = yield* registry.checkBoot(node_id, registration.boot_id).pipe(
      Effect.as(true),
      Effect.catchTag("RegistrationRequired", () => Effect.succeed(false))
    )
    const sequences = yield* lifecycle.sequences(node_id, listed)
    const { token } = yield* registry.register(registration)
    const suspects: Array<ServerId> = []
    const reconcile = Effect.fnUntraced(function* (view: DaemonServer) {
      const sequence = sequences.get(view.id)
      const record = index.get(view.id)
      if (view.held === true) yield* releaseHeld(node_id, view.id)
      if (sequence === undefined || (record !== undefined && changesNothing(onSnapshot(record, view)))) return
      if (sameBoot) suspects.push(view.id)
      else yield* lifecycle.observe(node_id, view, sequence)
    })
    yield* Effect.forEach(views.values(), reconcile, { concurrency: CONCURRENCY, discard: true })
    const has = new Set(listed)
    const stopped: Array<ServerId> = []
    for (const record of yield* index.onNode(node_id)) {
      if (record.run?.undelivered === true) stopped.push(record.id)
      if (!has.has(record.id) && isFinished(record.install)) suspects.push(record.id)
    }
    yield* lifecycle.markForVerification(suspects)
    yield* provisioner.wakeNode(node_id)
    const { keep, kept, live } = yield* reconcileKept(registration, listed)
    const standings = yield* store.read(migrations.standings(node_id, [...live, ...kept]))
    const orphans = sortOrphans({ node_id, listed: live, kept, standings, removals })
    yield* warnOfUnknown(node_id, orphans.unknown)
    for (const { id } of orphans.unknown) isNews(node_id, registration.boot_id, id)
    // A node that has never had a server must not learn where the server is. The log names its node.
    const unknown = orphans.unknown.map(({ id }) => ({ id }))
    return {
      token,
      delete: orphans.delete,
      unknown,
      ...(stopped.length === 0 ? {} : { stopped }),
      ...(keep.length === 0 ? {} : { keep })
    }
  }, mayUseReserve)

  return { isNews, register }
})

/**
 * Reconciles records and nodes (spec 9.6). Any replica reconciles a registration's snapshot. The leader sets servers
 * of a lost node to `unknown`, and deletes unsaved ones once the node is given up.
 */
export class NodeReconciler extends Context.Service<NodeReconciler>()("muster/servers/NodeReconciler", {
  make: Effect.gen(function* () {
    const index = yield* ServerIndex
    const leadership = yield* Leadership
    const lifecycle = yield* ServerLifecycle
    const locks = yield* ServerLocks
    const nodeRepo = yield* NodeRepo
    const provisioner = yield* Provisioner
    const registry = yield* NodeRegistry
    const store = yield* Store
    const nodes = makeKeyedLock<NodeId>()
    const { isNews, register } = yield* makeRegister

    const connected = (node_id: NodeId) => {
      const wake = nodes.withLock(node_id)(provisioner.wakeNode(node_id))
      return leadership.isSingle ? wake : Effect.delay(wake, REGISTRATION)
    }

    const lost = Effect.fnUntraced(function* (node_id: NodeId) {
      yield* pause // many nodes are lost at the same time
      const records = yield* index.onNode(node_id)
      const ids = records.filter((record) => record.status !== "unknown").map((record) => record.id)
      if (ids.length === 0) return
      yield* Effect.logWarning(`node lost: ${ids.length} servers are unknown`)
      yield* lifecycle.nodeLost(node_id, ids)
    })

    const givenUp = Effect.fnUntraced(function* (node_id: NodeId) {
      const records = yield* index.onNode(node_id)
      const ids = records.filter((record) => !record.definition.save).map((record) => record.id)
      if (ids.length === 0) return
      yield* Effect.logWarning(`node given up: ${ids.length} servers that are not saved are deleted`)
      yield* lifecycle.nodeGivenUp(node_id, ids)
    })

    /** Returns servers that were migrating to a lost node to the node that has their files. */
    const returnArriving = Effect.fnUntraced(function* (node_id: NodeId) {
      for (const { server_id } of yield* index.migrations) {
        const record = index.get(server_id)
        const isArriving = (yield* index.originOf(node_id, server_id)) !== undefined
        if (record === undefined || !isArriving || isFinished(record.install)) continue
        yield* locks.withLock(server_id)(
          lifecycle.refuseInstall(server_id, `node ${registry.nameOf(node_id)} is lost`)
        )
      }
    })

    const queue = yield* makeWorkQueue({
      name: "reconciliation",
      fields: ({ kind, node_id }: NodeChange) => ({ kind, node_id }),
      step: Effect.fnUntraced(function* ({ kind, node_id }) {
        if (kind === "connected" || kind === "reachable") yield* connected(node_id)
        else if (!registry.isConnected(node_id)) {
          yield* nodes.withLock(node_id)(kind === "lost" ? lost(node_id) : givenUp(node_id))
          yield* returnArriving(node_id)
        }
        return "done" as const
      }),
      backoff: databaseRetrySchedule,
      leadership,
      resume: leadership.isSingle
        ? Effect.succeed([])
        : Effect.map(store.read(nodeRepo.all), (records) =>
            records.flatMap(({ gone, id: node_id }): ReadonlyArray<NodeChange> => {
              if (gone === null) return []
              const lost: NodeChange = { node_id, kind: "lost" }
              return gone === "lost" ? [lost] : [lost, { node_id, kind: "given-up" }]
            })
          )
    })
    yield* registry.changes.pipe(
      Stream.runForEach((change) => Effect.sync(() => queue.add(change))),
      Effect.forkScoped({ startImmediately: true })
    )

    return {
      /** Whether a boot of a node mentions this unknown server for the first time. */
      isNews,
      /**
       * Registers a node and reconciles the records with its snapshot. The answer names servers to `delete`, and
       * `unknown` ones, whose records a restored database may lack.
       */
      register: (
        registration: Registration
      ): Effect.Effect<RegistrationAnswer, InvalidRequest | Unavailable> =>
        nodes.withLock(registration.id)(register(registration))
    }
  })
}) {
  static readonly layer = Layer.effect(NodeReconciler, NodeReconciler.make)
}

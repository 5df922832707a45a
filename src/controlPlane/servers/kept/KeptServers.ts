/** Deleted servers whose files their nodes keep (spec 3.19): listed, given back, or purged before their time. */
import { isDeepStrictEqual } from "node:util"
import { Context, Data, Effect, Layer } from "effect"
import { changedPorts } from "../../../contract/domain/Allocation.ts"
import { describeAudit } from "../../../contract/domain/AuditedRequest.ts"
import { NotFound, Unavailable } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { admits } from "../../../contract/domain/Key.ts"
import type { DaemonServer } from "../../../contract/domain/NodeMessages.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { CurrentPrincipal, currentRestriction } from "../../http/Principal.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { placementOf } from "../../nodes/placementChoice.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { CapacityRepo } from "../../store/repos/CapacityRepo.ts"
import { DeletedServerRepo, type KeptServer, KeptServerRepo } from "../../store/repos/DeletedServerRepo.ts"
import { QuotaRepo } from "../../store/repos/QuotaRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { append, Store } from "../../store/Store.ts"
import { type ListRequest, matches, wantedPage } from "../list/listQuery.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { type Include, includeOf, summaryOf } from "../list/summary.ts"
import { creationRefusal } from "../state/callerLimits.ts"
import { makeMigrationRecords } from "../state/migrationRecords.ts"
import { creationOf, isUnknownToNode, makeNodeErrors, type NodeCallError } from "../state/nodeCalls.ts"
import { makeQuotaUsage } from "../state/quotaRules.ts"
import { ServerLocks } from "../state/ServersOptions.ts"

/** Rows that are read at a time. */
const ROWS = 200
const MOST_LISTED = 1_000
/** Attempts if other replicas take the ports or the capacity first. */
const ATTEMPTS = 5
/**
 * Added to the sequence of an undeleted server: reports from before its deletion must not count. Undeletes with other ports
 * have other sequences, and the node does what the highest one says.
 */
const GAP = 1_000

const later = (record: ServerRecord): ServerRecord => ({
  ...record,
  last_sequence: record.last_sequence + GAP
})

/** Deletes the record of a kept server and makes its node remove the files, in one write. */
export const makePurge = Effect.gen(function* () {
  const kept = yield* KeptServerRepo
  const store = yield* Store
  const { deleteOn } = yield* makeMigrationRecords
  return ({ id, node_id, record }: KeptServer) =>
    store.write(Effect.tap(kept.remove(id), (removed) => (removed ? deleteOn(record, node_id) : Effect.void)))
})

/** Finds the kept servers that the key of the caller reads. */
const makeReads = Effect.gen(function* () {
  const kept = yield* KeptServerRepo
  const registry = yield* NodeRegistry
  const store = yield* Store

  const find = Effect.fnUntraced(function* (id: ServerId) {
    const within = yield* currentRestriction
    const found = yield* store.read(kept.find(id))
    return found !== undefined && admits(within, found.record) ? found : yield* NotFound.server(id)
  })

  const list = Effect.fn("KeptServers.list")(function* (
    { filter, limit = MOST_LISTED, ...query }: ListRequest,
    include: Include
  ) {
    const within = yield* currentRestriction
    const { next, records } = yield* wantedPage(
      { ...query, limit, noun: "deleted server", rows: ROWS },
      (page) => store.read(kept.page(page)),
      ({ record }) => matches({ ...filter, within }, asDeleted(record))
    )
    return {
      servers: records.map(({ deleted_at, node_id, purge_at, record }) => ({
        ...summaryOf(asDeleted(record), registry.nameOf(node_id), include),
        deleted_at: new Date(deleted_at).toISOString(),
        purge_at: new Date(purge_at).toISOString()
      })),
      next
    }
  })

  return { find, list }
})

/** Returns the record of a server that is no longer up. */
const asDeleted = (record: ServerRecord): ServerRecord => ({ ...record, status: "offline" })

/** Returns the record of an undeleted server: offline, without what was pending before its deletion. */
const undeleted = (before: ServerRecord, view: DaemonServer, now: string): ServerRecord => {
  const { expires_at, problem: _, restart: __, run, trace: ___, ...record } = before
  const isOver = expires_at !== undefined && expires_at <= now
  return {
    ...record,
    status: view.status === "installing" ? "installing" : "offline",
    install: view.install.phase === record.install.phase ? record.install : view.install,
    start_pending: false,
    updated_at: now,
    ...(expires_at === undefined || isOver ? {} : { expires_at }),
    ...(run?.stopped_by === undefined ? {} : { run: { stopped_by: run.stopped_by } })
  }
}

/** Other replicas have taken the ports or the capacity. */
class Taken extends Data.TaggedError("Taken")<{ readonly reason: string }> {}

/** Writes the record of a server that its node has given back. */
const makeInsertUndeleted = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const deleted = yield* DeletedServerRepo
  const kept = yield* KeptServerRepo
  const quotas = yield* QuotaRepo
  const rooms = yield* CapacityRepo
  const servers = yield* ServerRepo
  const store = yield* Store
  const usageOf = yield* makeQuotaUsage

  /** @param chosen the row with the ports of the record */
  return Effect.fnUntraced(function* (record: ServerRecord, chosen: KeptServer) {
    const { blueprint_id, created_by, id, node_id } = record
    const own = (yield* CurrentPrincipal)?.quotas ?? []
    const insert = Effect.gen(function* () {
      // First: of two replicas, one has the row, and the other waits for it.
      const now = yield* kept.take(id)
      if (now === undefined) return yield* NotFound.server(id)
      if (now.record.last_sequence !== chosen.record.last_sequence)
        return yield* new Taken({ reason: "another undelete gives it other ports" })
      const counting = yield* Effect.filter(own, (quota) => quotas.counts(quota, created_by))
      const use = { quotas: counting, record }
      const refusal = (yield* usageOf([use])).refusal(use)
      if (refusal !== undefined) return yield* refusal
      const room = yield* rooms.of(node_id, blueprint_id)
      const why = balancer.whyNot({ ...placementOf(record), node_id }, room)
      if (why !== undefined) return yield* new Taken({ reason: why })
      if ((yield* servers.insert(record)) === "port-taken")
        return yield* new Taken({ reason: "its ports are taken" })
      yield* servers.setHasRun(id)
      yield* deleted.remove(id)
      yield* append({ topic: "server:created", server_id: id, payload: null }, record)
      yield* append({ topic: "status", server_id: id, payload: record.status }, record)
      return undefined
    })
    return yield* Effect.catchTag(store.write(insert), "Taken", ({ reason }) => Effect.succeed(reason))
  })
})

/** Gives a deleted server back: its node first, then its record, so that a crash in between leaves it deleted. */
const makeUndelete = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const insert = yield* makeInsertUndeleted
  const journal = yield* Journal
  const kept = yield* KeptServerRepo
  const locks = yield* ServerLocks
  const registry = yield* NodeRegistry
  const servers = yield* ServerRepo
  const store = yield* Store
  const { failWith } = yield* makeNodeErrors
  const { find } = yield* makeReads
  const { notConnected } = yield* makeNodeAvailability

  /** Makes the node give the files back with the ports of a record. A 404 of the node ends the kept server. */
  const restore = Effect.fnUntraced(function* (record: ServerRecord) {
    const daemon = yield* daemons.of(record.node_id)
    return yield* daemon.create({ ...creationOf(record), restore: true })
  })

  const refused = (record: ServerRecord, error: DaemonError): Effect.Effect<never, NodeCallError> =>
    isUnknownToNode(error)
      ? Effect.andThen(store.write(kept.remove(record.id)), Effect.fail(NotFound.server(record.id)))
      : failWith(record, error)

  /**
   * Makes the node keep the files again after an attempt that has failed, unless another replica undeletes the server.
   * What cannot be done now, the next registration of the node does. @param before the record from before the attempt
   */
  const settle = Effect.fnUntraced(
    function* (chosen: KeptServer, before: ServerRecord) {
      const { id, node_id } = chosen
      // From here on, no undelete that has begun ends.
      const { allocations } = before
      if (!(yield* store.write(kept.move(chosen, { ...later(chosen.record), allocations })))) return
      const daemon = yield* daemons.of(node_id)
      yield* daemon.remove(id, { kept: true })
      // One that has begun since may have ended before the removal.
      const [live] = yield* store.read(servers.find([id]))
      if (live !== undefined) yield* restore(live)
    },
    (settled) => Effect.ignore(settled)
  )

  const attempt = Effect.fnUntraced(function* (found: KeptServer) {
    const { record: before } = found
    const { id, node_id } = before
    const { allocations } = yield* balancer.place({
      ...placementOf(before),
      node_id,
      like: before.allocations
    })
    const isSame = isDeepStrictEqual(allocations, before.allocations)
    const chosen = isSame ? found : { ...found, record: { ...later(before), allocations } }
    const placed = later(chosen.record)
    return yield* Effect.gen(function* () {
      // Undeletes with other ports, which have begun before, do not end.
      if (!isSame && !(yield* store.write(kept.move(found, chosen.record))))
        return { reason: "another undelete works on it", record: placed }
      const view = yield* Effect.catch(restore(placed), (error) => refused(placed, error))
      const record = undeleted(placed, view, yield* nowText)
      const reason = yield* Effect.onError(insert(record, chosen), () => settle(chosen, before))
      if (reason !== undefined) yield* settle(chosen, before)
      return { reason, record }
    }).pipe(
      Effect.ensuring(
        Effect.suspend(() => (index.get(id) === undefined ? balancer.release(id) : Effect.void))
      )
    )
  }, Effect.uninterruptible)

  const undelete = Effect.fnUntraced(function* (id: ServerId) {
    let reason = ""
    for (let tried = 0; tried < ATTEMPTS; tried++) {
      const found = yield* find(id)
      const { node_id, record } = found
      yield* describeAudit({ id, ...(record.name === undefined ? {} : { name: record.name }) })
      const refusal = creationRefusal(yield* CurrentPrincipal, record)
      if (refusal !== undefined) return yield* refusal
      if (!registry.isConnected(node_id)) return yield* Effect.flatMap(notConnected(node_id), Effect.fail)
      const made = yield* attempt(found)
      if (made.reason === undefined) {
        yield* Effect.annotateLogs(Effect.logInfo("server undeleted"), { server_id: id, node_id })
        const ports_changed = changedPorts(record.allocations, made.record.allocations)
        return {
          ...summaryOf(made.record, registry.nameOf(node_id), includeOf(["status"])),
          ...(ports_changed.length === 0 ? {} : { ports_changed })
        }
      }
      reason = made.reason
      yield* journal.catchUp
    }
    return yield* new Unavailable({ detail: `server cannot be undeleted: ${id}: ${reason}` })
  })

  return Effect.fn("KeptServers.undelete")((id: ServerId) => locks.withLock(id)(undelete(id)))
})

export class KeptServers extends Context.Service<KeptServers>()("muster/servers/KeptServers", {
  make: Effect.gen(function* () {
    const { find, list } = yield* makeReads
    const locks = yield* ServerLocks
    const purge = yield* makePurge
    return {
      /** Returns the deleted servers of a request, newest deletion first. @error InvalidRequest `after` is none */
      list,
      /**
       * Gives a deleted server back, offline, with its old ports where they are free.
       * @error NotFound    it is not kept, or its node has lost its files
       * @error Forbidden   the key may not create such a server, or its quota is used up
       * @error Unavailable its node is not connected, or has no room
       */
      undelete: yield* makeUndelete,
      /** Removes the files of a deleted server before their time. @error NotFound it is not kept */
      purge: Effect.fn("KeptServers.purge")((id: ServerId) =>
        locks.withLock(id)(Effect.asVoid(Effect.flatMap(find(id), purge)))
      )
    }
  })
}) {
  static readonly layer = Layer.effect(KeptServers, KeptServers.make)
}

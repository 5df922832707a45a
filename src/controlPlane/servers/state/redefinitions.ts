import { isDeepStrictEqual } from "node:util"
import { Clock, Effect } from "effect"
import { portText } from "../../../contract/domain/Allocation.ts"
import { changesBetween } from "../../../contract/domain/compareDefinitions.ts"
import { isUnderway } from "../../../contract/domain/Drain.ts"
import { Conflict, InvalidRequest, NotFound, Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { pendingInstall } from "../../../contract/domain/InstallState.ts"
import type { Quota } from "../../../contract/domain/Key.ts"
import { MAX_LABELS, mergeLabels, type ServerPatch } from "../../../contract/domain/Labels.ts"
import { committedMemoryBytes, diskLimitBytes } from "../../../contract/domain/Limits.ts"
import type { TakenPort } from "../../../contract/domain/NodeMessages.ts"
import type { Overrides } from "../../../contract/domain/Overrides.ts"
import { startsAlways } from "../../../contract/domain/RunRule.ts"
import { type Redefinition, reservedLimits, type ServerRecord } from "../../../contract/domain/Server.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { runs } from "../../nodes/fleet/place.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { placementOf } from "../../nodes/placementChoice.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { CapacityRepo } from "../../store/repos/CapacityRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { QuotaRepo } from "../../store/repos/QuotaRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { portsOf, type ServerFields } from "../../store/repos/serverRows.ts"
import { append, Store } from "../../store/Store.ts"
import { beingDeleted, moving, notOffline } from "./conflicts.ts"
import { makeMigrationRecords } from "./migrationRecords.ts"
import { raiseRefusal } from "./quotaRules.ts"
import { logFields, type RecordChanges } from "./recordChanges.ts"

export interface NewDefinition {
  readonly definition: ServerDefinition
  readonly overrides?: Overrides
  /** Whether the server is installed again, which requires it offline. */
  readonly reinstall?: boolean
  /** The quotas of the key that may raise limits; none by default. */
  readonly quotas?: ReadonlyArray<Quota>
  readonly settings?: ServerPatch
}

const tooFewPorts = (record: ServerRecord, needed: number) =>
  new Conflict({
    detail: `the definition has ${needed} ports, server ${record.id} has ${portsOf(record).length}`,
    hint: "Create another server: a server keeps its ports."
  })

/** Definitions in memory until the node reports which one the server has. */
const MOST_EARLIER = 10

/** Returns what process and files have, and may have by now, after a further definition. */
const usedBefore = ({ definition, redefinition }: ServerRecord): Pick<Redefinition, "used" | "earlier"> => {
  if (redefinition?.used === undefined) return { used: definition }
  const { defined_at, earlier = [], used } = redefinition
  return { used, earlier: [...earlier, { defined_at, definition }].slice(-MOST_EARLIER) }
}

export const settingsOf = Effect.fnUntraced(function* (
  record: ServerRecord,
  { labels, ...same }: ServerPatch
): Effect.fn.Return<ServerFields, InvalidRequest> {
  if (labels === undefined) return same
  const merged = mergeLabels(record.labels, labels)
  if (Object.keys(merged).length > MAX_LABELS) {
    return yield* new InvalidRequest({
      detail: `body field labels: the server would have ${Object.keys(merged).length} labels, at most ${MAX_LABELS} are allowed`
    })
  }
  return { ...same, labels: merged }
})

/** The changes of definitions (spec 3.12). */
export const makeRedefinitions = Effect.fnUntraced(function* ({ carryOut }: RecordChanges) {
  const { write } = yield* Store
  const servers = yield* ServerRepo
  const quotaRepo = yield* QuotaRepo
  const migrations = yield* MigrationRepo
  const { setStartPending } = yield* makeMigrationRecords
  const balancer = yield* LoadBalancer
  const capacity = yield* CapacityRepo

  const appendChanged = (record: ServerRecord) =>
    append({ topic: "server:changed", server_id: record.id, payload: null }, record)

  /** Refuses a definition that its node cannot run, or whose larger limits do not fit there. */
  const checkFits = Effect.fnUntraced(function* (before: ServerRecord, record: ServerRecord) {
    const { blueprint_id, definition, node_id } = record
    const own = reservedLimits(before)
    const limits = reservedLimits(record)
    const [memory, disk] = [committedMemoryBytes(own), diskLimitBytes(own)]
    const isLarger = committedMemoryBytes(limits) > memory || diskLimitBytes(limits) > disk
    const isOther = !isDeepStrictEqual(before.definition.runtimes, definition.runtimes)
    if (!isLarger && !isOther) return
    const committed = yield* capacity.of(node_id, blueprint_id)
    const room = committed && {
      ...committed,
      memory_bytes: committed.memory_bytes - memory,
      disk_bytes: committed.disk_bytes - disk
    }
    const offered = room?.runtimes
    if (isOther && offered !== undefined && !runs({ runtimes: offered }, definition)) {
      return yield* Unavailable.nodeCannotRun(node_id, offered, definition.runtimes)
    }
    const reason = isLarger ? balancer.whyNot({ ...placementOf(record), node_id }, room) : undefined
    if (reason === undefined) return
    return yield* new Unavailable({
      detail: `the limits do not fit on node ${node_id}: ${reason}`,
      hint: "Choose lower limits, or free capacity on the node."
    })
  })

  const checkQuotas = Effect.fnUntraced(function* (
    quotas: ReadonlyArray<Quota>,
    before: ServerRecord,
    record: ServerRecord
  ) {
    for (const given of quotas) {
      const { quota, used } = yield* quotaRepo.use(given)
      const counted = yield* quotaRepo.counts(quota, before.created_by)
      const refusal = raiseRefusal(quota, counted ? used : undefined, before, record)
      if (refusal !== undefined) return yield* refusal
    }
  })

  const redefine = Effect.fnUntraced(function* <E>(
    id: ServerId,
    by: (record: ServerRecord) => Effect.Effect<NewDefinition, E>
  ) {
    const before = yield* servers.lock(id)
    if (before === undefined) return yield* NotFound.server(id)
    if (yield* servers.isRemoving(id)) return yield* beingDeleted(id)
    if (isUnderway(yield* migrations.find(id))) return yield* moving(id)
    const asked = yield* by(before)
    const { definition, overrides = before.overrides ?? {}, reinstall = false } = asked
    if (asked.settings !== undefined) {
      yield* servers.set(id, yield* settingsOf(before, asked.settings))
      yield* appendChanged(before)
    }
    const isSame = isDeepStrictEqual(definition, before.definition)
    if (isSame && !reinstall && isDeepStrictEqual(overrides, before.overrides ?? {})) {
      return { before, record: before }
    }
    if (reinstall && before.status !== "offline") return yield* notOffline(before)
    if (definition.ports > portsOf(before).length) return yield* tooFewPorts(before, definition.ports)
    const { overrides: _, ...kept } = before
    const record: ServerRecord = {
      ...kept,
      blueprint_id: definition.blueprint_id,
      definition,
      ...(Object.keys(overrides).length === 0 ? {} : { overrides }),
      ...(isSame && !reinstall
        ? {}
        : {
            redefinition: {
              defined_at: Math.max(
                (before.redefinition?.defined_at ?? 0) + 1,
                yield* Clock.currentTimeMillis
              ),
              delivered: false,
              ...usedBefore(before),
              ...(reinstall ? { reinstall } : {})
            }
          })
    }
    yield* checkQuotas(asked.quotas ?? [], before, record)
    yield* checkFits(before, record)
    yield* servers.redefine(before, record)
    yield* appendChanged(record)
    const changes = isSame ? [] : changesBetween(before.definition, definition)
    const isIncomplete = before.install.phase === "failed" && changes.length > 0
    const installs = isIncomplete || changes.some(({ needs }) => needs === "installation")
    if (reinstall || (installs && before.status === "offline")) {
      yield* carryOut(record, { install: pendingInstall, status: "installing" })
    }
    if (!isSame && before.status === "offline" && !before.start_pending && startsAlways(record)) {
      yield* setStartPending(record, true)
    }
    return { before, record }
  })

  const delivered = Effect.fnUntraced(function* (id: ServerId, defined_at: number) {
    const record = yield* servers.lock(id)
    if (record?.redefinition === undefined || record.redefinition.delivered) return
    if (record.redefinition.defined_at !== defined_at) return
    const { reinstall: _, ...redefinition } = record.redefinition
    yield* servers.set(id, { redefinition: { ...redefinition, delivered: true } })
    yield* appendChanged(record)
  })

  return {
    /**
     * Changes a server's definition, overrides and reservation in one write; {@link Provisioner} delivers them. `by`
     * decides on the present record, and only reads memory.
     * @error Conflict       the server is deleted, migrates, needs more ports, or must be offline to reinstall
     * @error InvalidRequest too many labels
     * @error Forbidden      the quota of the key does not allow the memory limit
     * @error Unavailable    the limits do not fit on the node
     */
    redefine: <E = never>(id: ServerId, by: (record: ServerRecord) => Effect.Effect<NewDefinition, E>) =>
      write(redefine(id, by)),
    /** Records that the node has accepted the definition of this time. */
    delivered: (id: ServerId, defined_at: number) => write(delivered(id, defined_at))
  }
})

/** Replacements that are tried if other replicas take the ports first. */
const ATTEMPTS = 5

/**
 * Replaces a server's ports that a program of its node has, and returns its allocations (spec 2.4). Ports of others are
 * ignored.
 * @error NotFound the server is not on the node
 * @error Conflict it is deleted or migrates, or no port is free
 */
export const makeReplacePorts = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const journal = yield* Journal
  const migrations = yield* MigrationRepo
  const servers = yield* ServerRepo
  const { write } = yield* Store

  const replaceable = Effect.fnUntraced(function* (node_id: NodeId, id: ServerId) {
    const record = yield* servers.lock(id)
    if (record?.node_id !== node_id) return yield* NotFound.server(id)
    if (yield* servers.isRemoving(id)) return yield* beingDeleted(id)
    if (isUnderway(yield* migrations.find(id))) return yield* moving(id)
    return record
  })

  /** Writes other allocations of a record, unless it has changed since. */
  const replace = Effect.fnUntraced(function* (
    before: ServerRecord,
    allocations: ServerRecord["allocations"]
  ) {
    const { id: server_id, node_id } = before
    const record = yield* replaceable(node_id, server_id)
    if (JSON.stringify(record.allocations) !== JSON.stringify(before.allocations)) return "changed" as const
    const outcome = yield* servers.replacePorts(record, allocations)
    if (outcome === "port-taken") return outcome
    yield* append({ topic: "server:placed", server_id, payload: { node_id, allocations } }, record)
    return outcome
  })

  const attempt = Effect.fnUntraced(function* (
    node_id: NodeId,
    id: ServerId,
    taken: ReadonlyArray<TakenPort>
  ) {
    const record = yield* write(replaceable(node_id, id))
    const held = portsOf(record)
    const lost = held
      .filter(({ address, port }) => taken.some((one) => one.ip === address && one.port === port))
      .map(({ address: ip, port }) => ({ ip, port }))
    if (lost.length === 0) return record.allocations
    const allocations = yield* balancer.replacePorts(record, lost)
    // An interruption waits for the write, whose outcome decides which ports are reserved.
    const outcome = yield* Effect.uninterruptible(write(replace(record, allocations)))
    if (outcome === "port-taken") yield* balancer.avoidPorts
    if (outcome !== "inserted") return undefined
    yield* Effect.logWarning(
      `another program of the node has ${lost.map(portText).join(", ")}: the server has ${portText(allocations.default)} now`
    ).pipe(Effect.annotateLogs(logFields(record)))
    return allocations
  }, Effect.scoped)

  return Effect.fn("ServerLifecycle.replacePorts")(function* (
    node_id: NodeId,
    id: ServerId,
    taken: ReadonlyArray<TakenPort>
  ) {
    for (let tried = 0; tried < ATTEMPTS; tried++) {
      const allocations = yield* attempt(node_id, id, taken)
      if (allocations !== undefined) return allocations
      yield* journal.catchUp
    }
    return yield* new Unavailable({ detail: `other servers took the free ports of node ${node_id} first` })
  })
})

/**
 * Backups of the files of servers (spec 12). `BackupTargets` defines where they are stored, `Backups` begins, lists, changes
 * and deletes them, `runners` does the work of their operations on nodes, `layerBackups` removes those that are due.
 * Begin with `Backups`, `runners`, `http`.
 */
import { Clock, Context, Effect, Layer } from "effect"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import {
  archiveOf,
  type BackupPatch,
  type BackupRecord,
  type BackupRequest,
  type BackupTask,
  type CreateTask
} from "../../contract/domain/Backup.ts"
import { NODE_TARGET } from "../../contract/domain/BackupTarget.ts"
import { Conflict, type Forbidden, NotFound } from "../../contract/domain/errors.ts"
import { type ServerId, serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { expiryOf, type LabelCondition, meets } from "../../contract/domain/Labels.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { Quiesce } from "../../contract/domain/Quiesce.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { NodeBackups, StoredBackup } from "../../contract/nodeApi/NodeBackups.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { checkRightFor, currentRestriction, rightsToQuiesce } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { Operations } from "../operations/Operations.ts"
import { wantedPage } from "../servers/list/listQuery.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { wrongStatus } from "../servers/state/conflicts.ts"
import { makeNodeCalls } from "../servers/state/nodeCalls.ts"
import { type BackupPage, BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"
import { answeredBy, BackupTargets } from "./BackupTargets.ts"

/** Backups of one server. */
const MOST = 1_000
/** Milliseconds after which a refused caller may try again. */
const RETRY_AFTER = 60_000
/** Rows that are read at a time for a caller that does not see all of them. */
const ROWS = 500

const tooMany = (id: ServerId, count: number) =>
  new LimitReached({
    detail: `server ${id} has ${count} backups`,
    hint: `Delete some: GET /api/backups?server_id=${id} lists them.`,
    limit: MOST,
    resetAfter: RETRY_AFTER
  })

const notDone = ({ id, state }: BackupRecord) =>
  new Conflict({
    detail: `backup is ${state}: ${id}`,
    hint: "GET /api/backups/:backup has its state; a finished one is done."
  })

const beingRead = (id: string, reader: Pick<OperationRecord, "id" | "kind">) =>
  new Conflict({
    detail: `operation ${reader.id} (${reader.kind}) reads the backup: ${id}`,
    hint: "Wait until it has ended, or cancel the operation."
  })

/** Logs why the files of a backup are removed later. */
export const removedLater = ({ id, node_id }: BackupRecord, why: string) =>
  Effect.logInfo(`the files of a backup are removed later: ${why}`).pipe(
    Effect.annotateLogs({ backup_id: id, node_id })
  )

/** Removes backups on their nodes, then in the database. */
export const makeRemoveBackup = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const fleet = yield* Fleet
  const repo = yield* BackupRepo
  const store = yield* Store
  const targets = yield* BackupTargets
  /**
   * @error NodeUnreachable | DaemonRefused | FileRefused the row stays, and the removal is repeated
   * @error Conflict an unfinished operation reads the backup
   */
  return Effect.fnUntraced(function* (record: BackupRecord) {
    const { id, server_id, target } = record
    const access = yield* targets.accessOf(target)
    const node_id = targets.nodeFor(record, access)
    const marked = Effect.gen(function* () {
      const reader = yield* repo.readerOf(id)
      if (reader !== undefined) return yield* beingRead(id, reader)
      yield* repo.deleting(id, index.factsOf(server_id))
    })
    yield* store.write(marked)
    // Without their node, the files of a backup on it are gone.
    if (access.type !== "node" || fleet.get(node_id) !== undefined)
      yield* Effect.flatMap(daemons.of(node_id), ({ backups }) => backups.remove(id, access))
    yield* store.write(repo.remove(id))
  })
})

/** Finds the backups that the caller sees. */
const makeReads = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* BackupRepo
  const store = yield* Store

  /** A caller sees the backups of the servers that its key reads, and those of deleted servers with a key for all only. */
  const visibility = Effect.map(currentRestriction, (within) => ({
    seesAll: within === undefined,
    sees: ({ server_id }: BackupRecord) => index.isWithin(server_id, within)
  }))

  const find = Effect.fn("Backups.find")(function* (id: string) {
    const { sees } = yield* visibility
    const record = yield* store.read(repo.find(id))
    return record === undefined || !sees(record) ? yield* NotFound.backup(id) : record
  })

  const list = Effect.fn("Backups.list")(function* (
    query: BackupPage,
    conditions: ReadonlyArray<LabelCondition>
  ) {
    const { sees, seesAll } = yield* visibility
    const rows = seesAll && conditions.length === 0 ? query.limit + 1 : ROWS
    return yield* wantedPage(
      { ...query, noun: "backup", rows },
      (page) => store.read(repo.list({ ...query, ...page })),
      (record) => sees(record) && conditions.every((condition) => meets(record.labels, condition))
    )
  })

  /** Returns the backups of a server, also of a deleted one. @error NotFound it is unknown and has none */
  const listOf = Effect.fn("Backups.listOf")(function* (
    id: ServerId,
    page: BackupPage,
    conditions: ReadonlyArray<LabelCondition>
  ) {
    const found = yield* list({ ...page, server_id: id }, conditions)
    if (found.records.length === 0) yield* index.mustBeKnown(id, yield* currentRestriction)
    return found
  })

  return { find, list, listOf } as const
})

/** Returns how a server is to hold still for a backup; one that is not up is read as it is. */
const makeQuiesceOf = Effect.gen(function* () {
  const blueprints = yield* BlueprintStore
  return Effect.fnUntraced(function* (
    { definition, id }: ServerRecord,
    mode: BackupRequest["quiesce"] = "auto"
  ): Effect.fn.Return<Quiesce | undefined, Conflict | Forbidden> {
    if (mode === "none") return undefined
    if (mode === "auto") {
      const rule = yield* blueprints.quiesceRule(definition.software)
      return rule === undefined ? undefined : { by: "commands", ...rule }
    }
    for (const right of rightsToQuiesce[mode]) yield* checkRightFor("quiesce", right)
    if (mode === "stop" && !definition.save)
      return yield* new Conflict({
        detail: `server ${id} is not saved: a stop deletes it`,
        hint: "Send another quiesce, or save the server first: PATCH /api/servers/:server."
      })
    return { by: mode }
  })
})

/** The schedule that makes a backup, and the id of the backup, which follows from its step. */
interface MadeBy extends Pick<BackupRecord, "schedule"> {
  readonly id: ServerId
}

/** Returns a function that prepares the backup of a server. */
export const makeNewBackup = Effect.gen(function* () {
  const repo = yield* BackupRepo
  const blueprints = yield* BlueprintStore
  const targets = yield* BackupTargets
  const quiesceOf = yield* makeQuiesceOf
  return Effect.fnUntraced(function* (
    server: ServerRecord,
    request: BackupRequest,
    { id: backup_id, schedule }: MadeBy = { id: serverId(idBytes(16)), schedule: null }
  ) {
    const rule = yield* blueprints.backupRule(server.blueprint_id)
    const target = request.target ?? rule.target ?? NODE_TARGET
    // The task gets the secret when it runs; here it is checked that there is one.
    const where = request.target === undefined ? "backup.target of the blueprint" : "body field target"
    yield* targets.check(target, where)
    const quiesce = yield* quiesceOf(server, request.quiesce)
    const now = yield* Clock.currentTimeMillis
    const { blueprint_id, id, labels, name = null, overrides = {} } = server
    const task: CreateTask = {
      kind: "create",
      backup_id,
      server: { server_name: name, blueprint_id, labels, overrides },
      ...(rule.exclude === undefined ? {} : { exclude: rule.exclude }),
      ...(request.kind === undefined ? {} : { contents: request.kind }),
      ...(quiesce === undefined ? {} : { quiesce })
    }
    /** Inserts the backup with the operation that makes it. @error LimitReached the server has too many */
    const insert = Effect.fnUntraced(function* (operation: OperationRecord) {
      const count = yield* repo.countOf(id)
      if (count >= MOST) return yield* Effect.fail(tooMany(id, count))
      yield* repo.insert(
        {
          id: backup_id,
          server_id: id,
          server_name: name,
          blueprint_id,
          name: request.name ?? null,
          labels: request.labels ?? labels,
          server_labels: labels,
          overrides,
          state: "queued",
          target,
          node_id: server.node_id,
          operation_id: operation.id,
          figures: null,
          pinned: request.pinned ?? false,
          expires_at: request.expires_in === undefined ? null : expiryOf(now, request.expires_in),
          created_by: operation.created_by,
          created_at: operation.created_at,
          finished_at: null,
          reason: null,
          drill: null,
          verified: null,
          schedule
        },
        server
      )
    })
    return { task, insert }
  })
})

export class Backups extends Context.Service<Backups>()("muster/backups/Backups", {
  make: Effect.gen(function* () {
    const daemons = yield* DaemonClient
    const index = yield* ServerIndex
    const operations = yield* Operations
    const removeOnNode = yield* makeRemoveBackup
    const repo = yield* BackupRepo
    const store = yield* Store
    const newBackup = yield* makeNewBackup
    const targets = yield* BackupTargets
    const { find, list, listOf } = yield* makeReads
    const { recordOf, refuseBusy, refuseMoving } = yield* makeNodeCalls

    const finished = Effect.fnUntraced(function* (id: string) {
      const record = yield* find(id)
      return record.state === "done" ? record : yield* notDone(record)
    })

    /** Begins a backup. @param by the schedule that makes it, if one does */
    const create = Effect.fn("Backups.create")(function* (id: ServerId, request: BackupRequest, by?: MadeBy) {
      const server = yield* recordOf(id)
      yield* refuseMoving(id)
      if (server.install.phase !== "ready") return yield* wrongStatus(server)
      const { insert, task } = yield* newBackup(server, request, by)
      yield* describeAudit({ id: task.backup_id })
      return yield* operations.begin("backup.create", server, task, { alongside: insert })
    })

    /** Returns the operation that makes a backup, or has made it, if there is one. */
    const operationOf = Effect.fnUntraced(function* (id: string) {
      const record = yield* store.read(repo.find(id))
      return record === undefined ? undefined : { id: record.operation_id, server_id: record.server_id }
    })

    const verify = Effect.fn("Backups.verify")(function* (id: string) {
      const record = yield* finished(id)
      const server: ServerRecord | undefined = yield* index.lookUp(record.server_id)
      if (server === undefined) {
        return yield* new Conflict({
          detail: `the server of the backup was deleted: ${record.server_id}`,
          hint: "Download it: GET /api/backups/:backup/archive breaks at a part that is damaged."
        })
      }
      const task: BackupTask = { kind: "verify", backup_id: id, archive: archiveOf(record) }
      return yield* operations.begin("backup.verify", server, task)
    })

    const patch = Effect.fn("Backups.patch")(function* (id: string, { expires_in, ...change }: BackupPatch) {
      const facts = index.factsOf((yield* find(id)).server_id)
      const now = yield* Clock.currentTimeMillis
      const expires_at =
        expires_in === undefined ? {} : { expires_at: expires_in === null ? null : expiryOf(now, expires_in) }
      return (
        (yield* store.write(repo.patch(id, { ...change, ...expires_at }, facts))) ??
        (yield* NotFound.backup(id))
      )
    })

    /** Calls the node that made a finished backup. If that node is away, any node reads a backup in a bucket. */
    const readOn = Effect.fnUntraced(function* <A, R>(
      record: BackupRecord,
      use: (backups: NodeBackups, stored: StoredBackup) => Effect.Effect<A, FileError, R>
    ) {
      const target = yield* targets.accessOf(record.target)
      const node_id = targets.nodeFor(record, target)
      const stored = { id: record.id, target, archive: archiveOf(record) }
      return yield* answeredBy(
        node_id,
        Effect.flatMap(daemons.of(node_id), ({ backups }) => use(backups, stored))
      )
    })

    const remove = Effect.fn("Backups.remove")(function* (id: string) {
      const record = yield* find(id)
      if (record.state === "queued" || record.state === "quiescing" || record.state === "copying") {
        return yield* new Conflict({
          detail: `backup is ${record.state}: ${id}`,
          hint: `Cancel its operation first: ${record.operation_id}.`
        })
      }
      yield* refuseBusy(record.server_id)
      // The row is marked: what the node does not do now, the leader repeats.
      yield* removeOnNode(record).pipe(
        Effect.catchTags({
          NodeUnreachable: (error) => removedLater(record, error.reason ?? "it is not connected"),
          DaemonRefused: ({ detail }) => removedLater(record, detail),
          FileRefused: ({ detail }) => removedLater(record, detail)
        })
      )
    })

    return { create, find, finished, list, listOf, operationOf, patch, readOn, remove, verify }
  })
}) {
  static readonly layer = Layer.effect(Backups, Backups.make)
}

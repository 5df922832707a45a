import { Context, Effect, Layer } from "effect"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import type { BackupRecord } from "../../contract/domain/Backup.ts"
import {
  type BackupTargetView,
  type CreateBackupTarget,
  NODE_TARGET,
  type PatchBackupTarget,
  type TargetAccess,
  type TargetSettings
} from "../../contract/domain/BackupTarget.ts"
import { Conflict, InvalidRequest, NodeFailure, NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { publicNetworks } from "../../shared/net/addressPolicy.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet, nodeNotFound } from "../nodes/fleet/Fleet.ts"
import { OperationFailed } from "../operations/OperationRunners.ts"
import { type BackupTargetRecord, BackupTargetRepo } from "../store/repos/BackupRepo.ts"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"
import { Store } from "../store/Store.ts"
import { type BackupTargetsOptions, makeFileTargets, TARGETS_SETTING } from "./targetsFile.ts"

const MOST = 20
const ALLOW_PRIVATE = "MUSTER_BACKUP_ALLOW_PRIVATE"

export const makeBackupTargetSeal = (secret: Uint8Array): Seal => makeSeal(secret, "backup targets")

/** The seal of this process; rows are targets. Default: a secret that ends with it. */
export const BackupTargetSeal: Context.Reference<Seal> = Context.Reference(
  "muster/backups/BackupTargetSeal",
  {
    defaultValue: () => makeBackupTargetSeal(passingSecret())
  }
)

const ofFile = (id: string) =>
  new Conflict({
    detail: `the file of ${TARGETS_SETTING} defines the target ${id}`,
    hint: "Change the file, then restart the service or send it SIGHUP."
  })
const ofService = () =>
  new Conflict({
    detail: `the target ${NODE_TARGET} is the folder of each node and cannot be changed`,
    hint: "Choose another id."
  })

const viewOf = ({ created_at, id, settings }: BackupTargetRecord): BackupTargetView => ({
  id,
  ...settings,
  source: "api",
  created_at
})

/** Returns the settings with the changes of a request. @error InvalidRequest a field is of the other type */
const changed = (id: string, before: TargetSettings, change: PatchBackupTarget) => {
  const refuse = (field: string) =>
    new InvalidRequest({
      detail: `body field ${field}: the target ${id} ${before.type === "node" ? "is a folder of nodes" : "is a bucket"}`,
      hint: "Send fields of its type, or define another target."
    })
  if (before.type === "node") {
    const foreign = Object.keys(change).find((field) => field !== "folder")
    return foreign === undefined
      ? Effect.succeed<TargetSettings>({ type: before.type, folder: change.folder ?? before.folder })
      : Effect.fail(refuse(foreign))
  }
  const { folder, prefix, secret_access_key: _, ...fields } = change
  if (folder !== undefined) return Effect.fail(refuse("folder"))
  const { prefix: old, ...kept } = before
  const after = prefix === undefined ? old : (prefix ?? undefined)
  return Effect.succeed<TargetSettings>({
    ...kept,
    ...fields,
    ...(after === undefined ? {} : { prefix: after })
  })
}

const nodeView: BackupTargetView = { id: NODE_TARGET, type: "node", source: "service" }

/** Returns what a node needs to reach a target, unless its secret is lost. */
const accessTo = (
  settings: TargetSettings,
  secret_access_key: string | undefined,
  allow_private: boolean
): TargetAccess | undefined => {
  if (settings.type === "node") return settings
  return secret_access_key === undefined ? undefined : { ...settings, secret_access_key, allow_private }
}

/** Returns settings and secret of a new target, as they are stored. */
const storedOf = (input: CreateBackupTarget, seal: Seal) => {
  if (input.type === "node") return { settings: { type: input.type, folder: input.folder }, sealed: null }
  const { id, secret_access_key, ...settings } = input
  return { settings, sealed: seal.seal(id, secret_access_key) }
}

/** The nodes that reach targets. */
const makeNodes = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const isConnected = (id: NodeId) => fleet.get(id)?.connected === true
  const anyNode = () => fleet.list.find(({ id }) => isConnected(id))?.id
  return {
    /** Returns the node that reaches a backup: the one that made it, or any if it is not on a node. */
    nodeFor: ({ node_id }: Pick<BackupRecord, "node_id">, { type }: TargetAccess): NodeId =>
      type === "node" || isConnected(node_id) ? node_id : (anyNode() ?? node_id),
    testOn: Effect.fnUntraced(function* (target: TargetAccess, wanted: NodeId | undefined) {
      if (wanted !== undefined && fleet.get(wanted) === undefined) return yield* nodeNotFound(fleet, wanted)
      const node_id = wanted ?? anyNode()
      if (node_id === undefined) return yield* Unavailable.noNodes("Connect a node: it reaches the target.")
      const tested = Effect.flatMap(daemons.of(node_id), ({ backups }) => backups.test(target))
      return { node_id, ...(yield* answeredBy(node_id, tested)) }
    })
  }
})

/** Targets of backups (spec 12.6). Secrets leave this service only in calls to nodes. */
export class BackupTargets extends Context.Service<BackupTargets>()("muster/backups/BackupTargets", {
  make: Effect.fnUntraced(function* (options: BackupTargetsOptions) {
    const { nodeFor, testOn } = yield* makeNodes
    const repo = yield* BackupTargetRepo
    const seal = yield* BackupTargetSeal
    const store = yield* Store
    const networks = publicNetworks(options.allowPrivate, ALLOW_PRIVATE)
    /** Returns why an address is refused; the node checks a name at each connection. */
    const check = (endpoint: string) => networks.refusal(new URL(endpoint).hostname)
    const readFile = makeFileTargets(options, check)
    const { allowPrivate: allow_private } = options
    let file = yield* readFile

    const checkEndpoint = (endpoint: string) => {
      const refused = check(endpoint)
      return refused === undefined
        ? Effect.void
        : Effect.fail(new InvalidRequest({ detail: `body field endpoint: ${refused}` }))
    }
    const find = Effect.fnUntraced(function* (id: string) {
      if (id === NODE_TARGET) return yield* ofService()
      if (file.has(id)) return yield* ofFile(id)
      return (yield* repo.find(id)) ?? (yield* NotFound.backupTarget(id))
    })
    const stored = Effect.fnUntraced(function* (id: string) {
      const record = yield* store.read(repo.find(id))
      if (record === undefined) return yield* NotFound.backupTarget(id)
      const { sealed, settings } = record
      const secret_access_key = sealed === null ? undefined : seal.open(id, sealed)
      const access = accessTo(settings, secret_access_key, allow_private)
      if (access !== undefined) return access
      return yield* new Conflict({
        detail: `the secret of the target ${id} was sealed with another secret.key`,
        hint: "Send it again: PATCH /api/backup-targets/:target with secret_access_key."
      })
    })

    /** Returns what a node needs to reach a target. @error NotFound | Conflict it is not defined, or its secret is lost */
    const accessOf = Effect.fn("BackupTargets.accessOf")(function* (id: string) {
      const onNode: TargetAccess = { type: "node" }
      if (id === NODE_TARGET) return onNode
      const inFile = file.get(id)
      return (
        (inFile === undefined ? undefined : accessTo(inFile.settings, inFile.secret, allow_private)) ??
        (yield* stored(id))
      )
    })

    return {
      accessOf,
      /** Checks that a target can be used. @error InvalidRequest | Conflict it is not defined, or its secret is lost */
      check: (id: string, where: string) =>
        Effect.catchTag(
          accessOf(id),
          "NotFound",
          ({ detail, hint }) => new InvalidRequest({ detail: `${where}: ${detail}`, hint })
        ),
      nodeFor,
      list: Effect.gen(function* () {
        const own = (yield* store.read(repo.all)).filter(({ id }) => !file.has(id)).map(viewOf)
        const defined = [...file.values()].map(
          ({ id, settings }): BackupTargetView => ({ id, ...settings, source: "file" })
        )
        return [nodeView, ...[...own, ...defined].toSorted((a, b) => (a.id < b.id ? -1 : 1))]
      }),
      get: Effect.fn("BackupTargets.get")(function* (id: string) {
        if (id === NODE_TARGET) return nodeView
        const inFile = file.get(id)
        if (inFile !== undefined) return { id, ...inFile.settings, source: "file" } satisfies BackupTargetView
        return viewOf(yield* store.read(find(id)))
      }),
      /** @error InvalidRequest its address is not allowed @error Conflict the id is used, or there are too many */
      create: Effect.fn("BackupTargets.create")(function* (input: CreateBackupTarget) {
        const { id } = input
        yield* describeAudit({ id })
        if (id === NODE_TARGET) return yield* ofService()
        if (file.has(id)) return yield* ofFile(id)
        if (input.type === "s3") yield* checkEndpoint(input.endpoint)
        const record = { id, created_at: yield* nowText, ...storedOf(input, seal) }
        const added = Effect.gen(function* () {
          const all = yield* repo.all
          if (all.some((one) => one.id === id))
            return yield* new Conflict({
              detail: `target exists: ${id}`,
              hint: "Change it, or choose another id."
            })
          if (all.length >= MOST)
            return yield* new Conflict({
              detail: `there are ${MOST} targets, and there may not be more`,
              hint: "Delete a target that is not needed."
            })
          yield* repo.put(record)
        })
        yield* store.write(added)
        return viewOf(record)
      }),
      patch: Effect.fn("BackupTargets.patch")(function* (id: string, change: PatchBackupTarget) {
        const { endpoint, secret_access_key } = change
        if (endpoint !== undefined) yield* checkEndpoint(endpoint)
        const patched = Effect.gen(function* () {
          const record = yield* find(id)
          const settings = yield* changed(id, record.settings, change)
          const sealed = secret_access_key === undefined ? record.sealed : seal.seal(id, secret_access_key)
          const next = { ...record, settings, sealed }
          yield* repo.put(next)
          return viewOf(next)
        })
        return yield* store.write(patched)
      }),
      /** @error Conflict backups are in it */
      remove: Effect.fn("BackupTargets.remove")(function* (id: string) {
        const removed = Effect.gen(function* () {
          yield* find(id)
          const count = yield* repo.backupsIn(id)
          if (count > 0)
            return yield* new Conflict({
              detail: `the target ${id} has ${count} ${count === 1 ? "backup" : "backups"}`,
              hint: `Delete them first: GET /api/backups?target=${id} lists them.`
            })
          yield* repo.remove(id)
        })
        yield* store.write(removed)
      }),
      /** Has a node write, read and delete an object. @error Unavailable the node is not connected */
      test: Effect.fn("BackupTargets.test")(function* (id: string, wanted: NodeId | undefined) {
        return yield* testOn(yield* accessOf(id), wanted)
      }),
      /** Reads the file again. Returns whether there is one. */
      reload: Effect.gen(function* () {
        file = yield* readFile
        return options.file !== undefined
      })
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof BackupTargets.make>) =>
    Layer.effect(BackupTargets, BackupTargets.make(...options))
}

/** Turns failures of a node into those of a route. */
export const answeredBy = <A, R>(node_id: NodeId, use: Effect.Effect<A, FileError, R>) =>
  Effect.catch(use, (error) =>
    error._tag === "NodeUnreachable"
      ? Effect.fail<NodeFailure | Unavailable>(Unavailable.nodeNotConnected(error.node_id))
      : Effect.fail(new NodeFailure({ detail: `node ${node_id}: ${error.detail}`, hint: error.hint }))
  )

/** Returns what a node needs for the target of a backup. @error OperationFailed it is not defined any more */
export const accessIn = (targets: BackupTargets["Service"], { target }: Pick<BackupRecord, "target">) =>
  targets.accessOf(target).pipe(
    Effect.catchTags({
      NotFound: ({ detail }) => new OperationFailed({ reason: detail }),
      Conflict: ({ detail }) => new OperationFailed({ reason: detail })
    })
  )

import { Context, Effect, Layer, Option, Schema } from "effect"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import type { BackupRecord } from "../../contract/domain/Backup.ts"
import {
  BackupTargetId,
  type BackupTargetView,
  type CreateBackupTarget,
  NODE_TARGET,
  type PatchBackupTarget,
  S3Settings,
  SecretAccessKey,
  type TargetAccess
} from "../../contract/domain/BackupTarget.ts"
import { Conflict, InvalidRequest, NodeFailure, NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { BackupTaskRequest } from "../../contract/nodeApi/NodeBackups.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { publicNetworks } from "../../shared/net/addressPolicy.ts"
import { settingFile } from "../http/settingFile.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet, nodeNotFound } from "../nodes/fleet/Fleet.ts"
import { OperationFailed } from "../operations/OperationRunners.ts"
import { type BackupTargetRecord, BackupTargetRepo } from "../store/repos/BackupTargetRepo.ts"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"
import { Store } from "../store/Store.ts"

const MOST = 20
const ALLOW_PRIVATE = "MUSTER_BACKUP_ALLOW_PRIVATE"
const SETTING = "MUSTER_BACKUP_TARGETS"

export const makeBackupTargetSeal = (secret: Uint8Array): Seal => makeSeal(secret, "backup targets")

/** The seal of this process; rows are targets. Default: a secret that ends with it. */
export const BackupTargetSeal: Context.Reference<Seal> = Context.Reference(
  "muster/backups/BackupTargetSeal",
  {
    defaultValue: () => makeBackupTargetSeal(passingSecret())
  }
)

export interface BackupTargetsOptions {
  /** The file of `MUSTER_BACKUP_TARGETS`, if any. */
  readonly file?: string
  readonly variable: (name: string) => string | undefined
  /** Whether targets may have loopback, link-local and private addresses. */
  readonly allowPrivate: boolean
}

/** A target of the file, with its secret. */
interface FileTarget {
  readonly id: string
  readonly settings: S3Settings
  readonly secret: string
}

const Entry = Schema.Struct({
  id: BackupTargetId,
  ...S3Settings.fields,
  secret_access_key: Schema.optionalKey(Schema.String),
  /** A variable of the service, or a file, with the secret. */
  secret_access_key_env: Schema.optionalKey(Schema.String),
  secret_access_key_file: Schema.optionalKey(Schema.String)
})
const TargetsInFile = Schema.Struct({ targets: Schema.Array(Entry) })
const isSecret = Schema.is(SecretAccessKey)

const ofFile = (id: string) =>
  new Conflict({
    detail: `the file of ${SETTING} defines the target ${id}`,
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

const nodeView: BackupTargetView = { id: NODE_TARGET, type: "node", source: "service" }

/** Reads the targets of the file. @error InvalidRequest the file cannot be read, or is not valid */
const makeFileTargets = (
  { file: path, variable }: BackupTargetsOptions,
  check: (endpoint: string) => string | undefined
) =>
  Effect.gen(function* (): Effect.fn.Return<ReadonlyMap<string, FileTarget>, InvalidRequest> {
    if (path === undefined) return new Map()
    const file = settingFile(SETTING, path)
    const { targets } = yield* file.decode(TargetsInFile)
    yield* file.refuseTwice(targets.map(({ id }) => id))
    const read = yield* Effect.forEach(
      targets,
      Effect.fnUntraced(function* (entry) {
        const {
          id,
          secret_access_key: inline,
          secret_access_key_env,
          secret_access_key_file,
          ...settings
        } = entry
        if (id === NODE_TARGET) return yield* file.invalid(`${id}: every service has this target`)
        const refused = check(settings.endpoint)
        if (refused !== undefined) return yield* file.invalid(`${id}: ${refused}`)
        const places = { inline, variable: secret_access_key_env, file: secret_access_key_file }
        const secret = yield* file.secret(places, variable)
        if (!isSecret(secret))
          return yield* file.invalid(
            `${id}: expected one of secret_access_key, secret_access_key_env and secret_access_key_file, with a secret`
          )
        return { id, settings, secret }
      })
    )
    return new Map(read.map((target) => [target.id, target]))
  })

/** The nodes that reach targets. */
const makeNodes = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const isConnected = (id: NodeId) => fleet.get(id)?.connected === true
  const anyNode = () => fleet.list.find(({ id }) => isConnected(id))?.id
  return {
    /** Returns the node that reaches a backup: the one that made it, or any if it is not on a node. */
    nodeFor: ({ node_id, target }: Pick<BackupRecord, "node_id" | "target">): NodeId =>
      target === NODE_TARGET || isConnected(node_id) ? node_id : (anyNode() ?? node_id),
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
      return Option.getOrUndefined(yield* repo.find(id)) ?? (yield* NotFound.backupTarget(id))
    })
    const stored = Effect.fnUntraced(function* (id: string) {
      const record = Option.getOrUndefined(yield* store.read(repo.find(id)))
      if (record === undefined) return yield* NotFound.backupTarget(id)
      const secret = seal.open(id, record.sealed)
      if (secret !== undefined) return { secret, settings: record.settings }
      return yield* new Conflict({
        detail: `the secret of the target ${id} was sealed with another secret.key`,
        hint: "Send it again: PATCH /api/backup-targets/:target with secret_access_key."
      })
    })

    /** Returns what a node needs to reach a target. @error NotFound | Conflict it is not defined, or its secret is lost */
    const accessOf = Effect.fn("BackupTargets.accessOf")(function* (id: string) {
      const onNode: TargetAccess = { type: "node" }
      if (id === NODE_TARGET) return onNode
      const { secret, settings } = file.get(id) ?? (yield* stored(id))
      const access: TargetAccess = {
        ...settings,
        secret_access_key: secret,
        allow_private: options.allowPrivate
      }
      return access
    })

    return {
      accessOf,
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
        const { id, secret_access_key, ...settings } = input
        yield* describeAudit({ id })
        if (id === NODE_TARGET) return yield* ofService()
        if (file.has(id)) return yield* ofFile(id)
        yield* checkEndpoint(settings.endpoint)
        const record = {
          id,
          created_at: yield* nowText,
          settings,
          sealed: seal.seal(id, secret_access_key)
        } satisfies BackupTargetRecord
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
        const { prefix, secret_access_key, ...fields } = change
        if (fields.endpoint !== undefined) yield* checkEndpoint(fields.endpoint)
        const changed = Effect.gen(function* () {
          const record = yield* find(id)
          const { prefix: before, ...kept } = record.settings
          const after = prefix === undefined ? before : (prefix ?? undefined)
          const settings = { ...kept, ...fields, ...(after === undefined ? {} : { prefix: after }) }
          const sealed = secret_access_key === undefined ? record.sealed : seal.seal(id, secret_access_key)
          const next = { ...record, settings, sealed }
          yield* repo.put(next)
          return viewOf(next)
        })
        return yield* store.write(changed)
      }),
      /** @error Conflict backups are in it */
      remove: Effect.fn("BackupTargets.remove")(function* (id: string) {
        const removed = Effect.gen(function* () {
          yield* find(id)
          const count = yield* repo.backupsIn(id)
          if (count > 0)
            return yield* new Conflict({
              detail: `${count} backups are in the target ${id}`,
              hint: "Delete them first: GET /api/backups lists them."
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

/** Returns the call of a task on a backup. @error OperationFailed its target is not defined any more */
export const callIn = (
  targets: BackupTargets["Service"],
  call: Omit<BackupTaskRequest, "target">,
  { target }: Pick<BackupRecord, "target">
) =>
  targets.accessOf(target).pipe(
    Effect.map((access): BackupTaskRequest => ({ ...call, target: access })),
    Effect.catchTags({
      NotFound: ({ detail }) => new OperationFailed({ reason: detail }),
      Conflict: ({ detail }) => new OperationFailed({ reason: detail })
    })
  )

/** Restores of backups over the files of servers (spec 12.5); `restoreRunner` does the work of their operations. */
import { Context, Effect, Layer } from "effect"
import type { RestorePlan } from "../../contract/api/BackupsGroup.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import type { BackupRecord, RestoredPart, RestoreRequest, RestoreWork } from "../../contract/domain/Backup.ts"
import { Conflict, InvalidRequest } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { makeNodeAccess, unasked } from "../files/nodeAccess.ts"
import { checkRightFor } from "../http/Principal.ts"
import { Operations } from "../operations/Operations.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { notOffline, wrongStatus } from "../servers/state/conflicts.ts"
import { makeNodeCalls } from "../servers/state/nodeCalls.ts"
import { Backups, makeNewBackup } from "./Backups.ts"

/** Seconds for which no rule deletes the backup of the files that a restore replaces: 7 days (spec 12.5). It then expires. */
const SAFETY_EXPIRES = 7 * 24 * 3600
/** Milliseconds by which the clocks of a service and a node may differ. */
const SKEW = 60_000

/** Returns the part of a backup that a request restores, unless it is all of it in place of all files. */
const partOf = ({ mode = "replace", paths = ["/"] }: RestoreRequest): RestoredPart | undefined =>
  mode === "replace" && paths.includes("/") ? undefined : { mode, paths }

export class Restores extends Context.Service<Restores>()("muster/backups/Restores", {
  make: Effect.gen(function* () {
    const backups = yield* Backups
    const newBackup = yield* makeNewBackup
    const operations = yield* Operations
    const { recordOf, refuseMoving } = yield* makeNodeCalls
    const { ask } = yield* makeNodeAccess
    const servers = yield* ServerManager

    /**
     * Names the backup of the present files by what replaces them: a name, or the minute in which it was backed up. What
     * an earlier restore replaced keeps its name.
     */
    const safetyName = Effect.fnUntraced(function* ({ created_at, name, operation_id }: BackupRecord) {
      const made = yield* Effect.option(operations.find(operation_id))
      return name !== null && made._tag === "Some" && made.value.kind === "backup.restore"
        ? name
        : `before ${name ?? `the one of ${created_at.slice(0, 16).replace("T", " ")} UTC`}`
    })

    /** Refuses paths that a backup lacks. If no node can read it now, the restore itself does so. */
    const checkPaths = Effect.fnUntraced(
      function* (backup: BackupRecord, { paths = [] }: RestoreRequest) {
        for (const path of paths) {
          const at = { path, limit: 0 }
          const { entry } = yield* backups.readOn(backup, (node, stored) => node.look(stored, at))
          if (entry === undefined)
            return yield* new InvalidRequest({
              detail: `the backup has no ${path}`,
              hint: "Choose paths that the backup has."
            })
        }
      },
      Effect.catchTag("Unavailable", () => Effect.void)
    )

    /** Checks that the caller may restore the definition of a backup, if it asks for it, and returns the changes. */
    const checkDefinition = Effect.fnUntraced(function* (
      server: ServerRecord,
      backup: BackupRecord,
      { definition }: RestoreRequest
    ) {
      if (definition !== "backup") return undefined
      yield* checkRightFor("definition", "change")
      if (backup.server_id !== server.id) {
        return yield* new Conflict({
          detail: `the backup is of another server: ${backup.server_id}`,
          hint: "Leave definition out, or create a server of the backup: POST /api/servers with from_backup."
        })
      }
      const given = yield* backups.readOn(backup, (node, stored) => node.definition(stored))
      return yield* servers.checkGiven(server, { definition: given, overrides: backup.overrides })
    })

    /** Has the node of a server compare its files with the entries of a backup. */
    const compared = Effect.fnUntraced(function* (
      server: ServerRecord,
      backup: BackupRecord,
      part: RestoredPart | undefined
    ) {
      const index = yield* backups.readOn(backup, (from, stored) => from.index(stored))
      const isOwn = backup.server_id === server.id && backup.node_id === server.node_id
      const request = {
        ...(part === undefined ? {} : { part }),
        ...(isOwn ? { same_since: Math.max(0, Date.parse(backup.created_at) - SKEW) } : {})
      }
      return yield* Effect.catchTags(
        ask(server, (node) => node.backups.compare(server.id, request, index)),
        {
          InsufficientStorage: unasked,
          PreconditionFailed: unasked,
          RangeNotSatisfiable: unasked,
          TooManyRequests: unasked
        }
      )
    }, Effect.scoped)

    return {
      /**
       * Returns what a restore would do, and changes nothing.
       * @error NotFound | Conflict | InvalidRequest as of the restore, but for a server that is not offline
       */
      plan: Effect.fn("Restores.plan")(function* (id: ServerId, request: RestoreRequest) {
        const server = yield* recordOf(id)
        const backup = yield* backups.finished(request.backup_id)
        yield* refuseMoving(id)
        if (server.install.phase !== "ready") return yield* wrongStatus(server)
        const definition = yield* checkDefinition(server, backup, request)
        const plan: RestorePlan = {
          backup_id: backup.id,
          ...(definition === undefined ? {} : { definition }),
          ...(yield* compared(server, backup, partOf(request))),
          must_stop: server.status !== "offline",
          ...(request.safety === false ? {} : { safety: yield* safetyName(backup) })
        }
        return plan
      }),
      /**
       * Begins the restore of a backup over the files of a server.
       * @error NotFound     the server or the backup is unknown
       * @error Conflict     the server is not offline, or the backup is not done
       * @error InvalidRequest the backup lacks a path
       * @error LimitReached as of `Operations.begin`, or there is no room for the backup of the present files
       */
      restore: Effect.fn("Restores.restore")(function* (id: ServerId, request: RestoreRequest) {
        const { backup_id, safety = true, start = false } = request
        yield* describeAudit({ changes: [`backup ${backup_id}`] })
        const server = yield* recordOf(id)
        const backup = yield* backups.finished(backup_id)
        yield* refuseMoving(id)
        if (server.status !== "offline") return yield* notOffline(server)
        if (server.install.phase !== "ready") return yield* wrongStatus(server)
        const definition = yield* checkDefinition(server, backup, request)
        yield* checkPaths(backup, request)
        const kept = safety
          ? yield* newBackup(server, {
              name: yield* safetyName(backup),
              expires_in: SAFETY_EXPIRES,
              quiesce: "none"
            })
          : undefined
        const part = partOf(request)
        const work: RestoreWork = {
          backup_id,
          // The restore also replaces files that the blueprint leaves out of backups.
          safety: kept === undefined ? null : { ...kept.task, exclude: [] },
          start,
          ...(definition === undefined ? {} : { defines: true }),
          ...(part === undefined ? {} : { part })
        }
        return yield* operations.begin("backup.restore", server, work, {
          ...(kept === undefined ? {} : { alongside: kept.insert })
        })
      })
    }
  })
}) {
  static readonly layer = Layer.effect(Restores, Restores.make)
}

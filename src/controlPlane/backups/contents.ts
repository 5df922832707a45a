/** The files of backups, without a restore (spec 12.9). */
import { Effect, Stream } from "effect"
import type { HttpServerRequest } from "effect/http"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import {
  archiveOf,
  type BackupEntry,
  type BackupRecord,
  type PackedEntry
} from "../../contract/domain/Backup.ts"
import { Conflict, NotFound } from "../../contract/domain/errors.ts"
import type { LookedAt, LookInto } from "../../contract/nodeApi/NodeBackups.ts"
import { respondWithBytes } from "../files/ranges.ts"
import type { Backups } from "./Backups.ts"

const noSuchPath = (path: string) =>
  new NotFound({
    detail: `the backup has no ${path}`,
    hint: "GET /api/backups/:backup/files lists what it has."
  })

const nameOf = ({ path }: PackedEntry) => path.slice(path.lastIndexOf("/") + 1)

/** The last time of which text forms have four digits of the year, in seconds. */
const LATEST = 253_402_300_799

const shownEntry = (entry: PackedEntry): BackupEntry => {
  const { mode, mtime, sha256, size = 0, target, type } = entry
  return {
    name: nameOf(entry),
    type,
    size,
    modified_at: new Date(Math.min(LATEST, Math.max(0, mtime)) * 1000).toISOString(),
    mode: `0${mode.toString(8).padStart(3, "0")}`,
    ...(target === undefined ? {} : { target }),
    ...(sha256 === undefined ? {} : { sha256 })
  }
}

const failsLate = <E extends { readonly _tag: string }>({ id, server_id }: BackupRecord) =>
  Stream.tapError((error: E) =>
    Effect.logWarning(`the download of a backup broke: ${error._tag}`).pipe(
      Effect.annotateLogs({ backup_id: id, server_id })
    )
  )

/** Reads entries and files of backups for responses. */
export const makeContents = (backups: Backups["Service"]) => {
  const lookAt = (record: BackupRecord, at: LookInto) =>
    backups.readOn(record, (node, stored) => node.look(stored, at))
  const found = ({ entry }: LookedAt, path: string) =>
    entry === undefined ? Effect.fail(noSuchPath(path)) : Effect.succeed(entry)

  return {
    /** Returns a page of a folder. @error NotFound | Conflict there is none, or it is a file */
    list: Effect.fn("backups.files")(function* (id: string, at: LookInto) {
      const looked = yield* lookAt(yield* backups.finished(id), at)
      const { type } = yield* found(looked, at.path)
      if (type !== "folder") {
        return yield* new Conflict({
          detail: `${at.path} is a ${type}`,
          hint: "Name a folder; GET /api/backups/:backup/files/content downloads a file."
        })
      }
      const { entries, next } = looked
      return { entries: entries.map(shownEntry), next }
    }),
    /** Responds with a file. @error NotFound | Conflict there is none, or it is a folder or a link */
    read: Effect.fn("backups.content")(function* (
      id: string,
      path: string,
      request: HttpServerRequest.HttpServerRequest
    ) {
      yield* request.method === "HEAD" ? withoutAudit : describeAudit({ id, paths: [path] })
      const record = yield* backups.finished(id)
      const entry = yield* found(yield* lookAt(record, { path, limit: 0 }), path)
      const { at = 0, sha256 = "", size = 0, type } = entry
      if (type !== "file") {
        return yield* new Conflict({
          detail: `${path} is a ${type}`,
          hint: "Name a file; GET /api/backups/:backup/archive downloads all of them."
        })
      }
      return yield* respondWithBytes(request, { etag: `"${sha256}"`, name: nameOf(entry), size }, (range) =>
        Effect.map(
          backups.readOn(record, (node, stored) => node.contents(stored, { at, size, sha256, ...range })),
          failsLate(record)
        )
      )
    }),
    /** Responds with the archive. */
    archive: Effect.fn("backups.archive")(function* (
      id: string,
      request: HttpServerRequest.HttpServerRequest
    ) {
      yield* request.method === "HEAD" ? withoutAudit : describeAudit({ id })
      const record = yield* backups.finished(id)
      const { bytes: size, sha256 } = archiveOf(record)
      const name = `${record.server_id}-${record.id}.tar.zst`
      return yield* respondWithBytes(request, { etag: `"${sha256}"`, name, size }, (range, isWhole) =>
        Effect.map(
          backups.readOn(record, (node, stored) => node.archive(stored, isWhole ? undefined : range)),
          failsLate(record)
        )
      )
    })
  }
}

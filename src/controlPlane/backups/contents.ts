/** The files of backups, without a restore (spec 12.9). */

import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import {
  archiveOf,
  type BackupEntry,
  type BackupRecord,
  type PackedEntry
} from "../../contract/domain/Backup.ts"
import { Conflict, NotFound } from "../../contract/domain/errors.ts"
import { modeText, nameOf, timeOfFile } from "../../contract/domain/Files.ts"
import type { LookedAt, LookInto } from "../../contract/nodeApi/NodeBackups.ts"
import { failsLate, respondWithBytes } from "../files/content.ts"
import type { Backups } from "./Backups.ts"

/** Counts the ways in which a download is made of a manifest: its bytes are the same as long as this is. */
const FORMAT = 1

const noSuchPath = (path: string) =>
  new NotFound({
    detail: `the backup has no ${path}`,
    hint: "GET /api/backups/:backup/files lists what it has."
  })

const shownEntry = (entry: PackedEntry): BackupEntry => {
  const { mode, mtime, sha256, size = 0, target, type } = entry
  return {
    name: nameOf(entry.path),
    type,
    size,
    modified_at: timeOfFile(mtime * 1000),
    mode: modeText(mode),
    ...(target === undefined ? {} : { target }),
    ...(sha256 === undefined ? {} : { sha256 })
  }
}

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
      return yield* respondWithBytes(
        request,
        { etag: `"${sha256}"`, name: nameOf(entry.path), size },
        (range) =>
          Effect.map(
            backups.readOn(record, (node, stored) => node.contents(stored, { at, size, sha256, ...range })),
            failsLate({ backup_id: record.id, server_id: record.server_id })
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
      const { bytes, kind, manifest_sha256, sha256 } = archiveOf(record)
      const isWritten = kind === "written"
      const size = isWritten
        ? ((yield* lookAt(record, { path: "/", limit: 0, measures: true })).archive_bytes ?? 0)
        : bytes
      const etag = isWritten ? `"${FORMAT}-${manifest_sha256}"` : `"${sha256}"`
      const name = `${record.server_id}-${record.id}.tar.zst`
      return yield* respondWithBytes(request, { etag, name, size }, (range, isWhole) =>
        Effect.map(
          backups.readOn(record, (node, stored) =>
            node.archive(stored, isWhole && !isWritten ? undefined : { ...range, size })
          ),
          failsLate({ backup_id: record.id, server_id: record.server_id })
        )
      )
    })
  }
}

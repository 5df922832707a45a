/**
 * The task of files that are packed into an archive of the server (spec 11.4). The archive counts against the disk
 * limit of the server, and gets its name once all of it is on disk.
 */
import { Effect, Option, type Scope, Stream } from "effect"
import type { PackTask } from "../../contract/domain/FileTask.ts"
import { lstatIn } from "../disk/safePath.ts"
import { archiveOf, bytesOfArchive } from "./archive.ts"
import type { ChangeScene } from "./changes.ts"
import { writeContents } from "./contents.ts"
import { type AccessError, toFileError } from "./refused.ts"
import { stagingOf, type TaskRecord, type TaskWork } from "./taskRecord.ts"
import { removeInside } from "./trees.ts"

/**
 * Removes the unfinished archive of an earlier daemon. Returns whether that daemon had finished the archive: all bytes
 * were written, and the file has got its name.
 */
const tidied = Effect.fnUntraced(function* ({ site }: ChangeScene, to: string, record: TaskRecord) {
  const place = yield* site.writable(to)
  const at = yield* site.parent(place)
  const aside = { folder: at.folder, name: stagingOf(record.staging).aside }
  const isLeft = Option.isSome(yield* lstatIn(to, aside.folder, aside.name))
  yield* removeInside(to, aside)
  return !isLeft && record.copied === true && Option.isSome(yield* lstatIn(to, at.folder, at.name))
}, Effect.scoped)

/** Packs files into an archive, whose format the task names. After a restart of the daemon, the work begins again. */
export const packTask = ({ format, overwrite, paths, to }: PackTask): TaskWork => ({
  begin: { total: 0, unit: "bytes" },
  run: Effect.fnUntraced(
    function* (
      scene,
      { isResumed, record },
      { note, save }
    ): Effect.fn.Return<TaskRecord, AccessError, Scope.Scope> {
      // Without the folder, nothing was written.
      const hadFinished = isResumed && (yield* Effect.orElseSucceed(tidied(scene, to, record), () => false))
      if (hadFinished) return { ...record, state: "done" }
      const total = yield* bytesOfArchive(scene.site, paths)
      let now: TaskRecord = { ...record, next: 0, total, copied: false }
      // A sparse file may be read for hours and make only a few bytes of the archive.
      const count = (bytes: number) => {
        now = { ...now, next: now.next + bytes }
        note(now)
      }
      const whole = Effect.suspend(() => {
        now = { ...now, total: now.next, copied: true }
        return save(now)
      })
      const bytes = yield* archiveOf(scene.site, { paths, format }, count)
      yield* writeContents(
        { ...scene, aside: stagingOf(record.staging).aside },
        { path: to, ...(overwrite === "replace" ? {} : { if_none_match: "*" }) },
        Stream.concat(bytes, Stream.drain(Stream.fromEffect(whole)))
      )
      return { ...now, state: "done" }
    },
    (packed) => Effect.mapError(packed, toFileError(to))
  ),
  undo: (scene, record) =>
    Effect.match(tidied(scene, to, record), {
      onSuccess: (hadFinished) => (hadFinished ? { ...record, state: "done" as const } : undefined),
      onFailure: () => undefined
    })
})

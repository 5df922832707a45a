/** Restores a backup in place of the files of a server (spec 12.5). */
import { createHash } from "node:crypto"
import { Effect, Stream } from "effect"
import type { ArchiveFigures, BackupTask, RestoredPart } from "../../contract/domain/Backup.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { whyBusy } from "../access/makeAccess.ts"
import { type AccessError, conflict, toTaskError, unprocessable } from "../access/refused.ts"
import { makeSite, undoLeft } from "../access/scenes.ts"
import { endLeft } from "../access/taskRecord.ts"
import { Arrival, decompressed } from "../archives/source.ts"
import type { ArchiveRefused } from "../archives/unpackFiles.ts"
import { IoError } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { receiveFiles } from "../files/importFiles.ts"
import type { Restoring } from "../files/restoreFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import type { LaunchFailed } from "../runtime/Runtime.ts"
import { placePart, unpackPart } from "./restorePart.ts"

/** Paths that a restore names which it has left out. */
const MOST_NAMED = 5

type Bytes = Stream.Stream<Uint8Array, AccessError>

interface Source {
  /** The parts of the target, or the archive that arrives from another node. */
  readonly from: Bytes | Arrival
  readonly onBytes: (done: number, total: number) => void
}

/** Fails at the end of an archive that is not the one of the backup; else `onEnd` runs there. */
const checked = (bytes: Bytes, archive: ArchiveFigures, { from, onBytes }: Source): Bytes =>
  Stream.suspend(() => {
    const hash = createHash("sha256")
    let read = 0
    const noted = Stream.tap(bytes, (chunk) =>
      Effect.sync(() => {
        read += chunk.length
        hash.update(chunk)
        onBytes(read, Math.max(read, archive.bytes))
      })
    )
    const end = Effect.suspend(() => {
      // A tar that is made of two archives compares the digest of each file.
      if (archive.kind === undefined && hash.digest("hex") !== archive.sha256)
        return unprocessable(
          `the archive is damaged: it has ${read} of ${archive.bytes} bytes, or its SHA-256 is another`,
          "Verify the backup, which names a damaged part."
        )
      return from instanceof Arrival ? from.received : Effect.void
    })
    return Stream.concat(noted, Stream.drain(Stream.fromEffect(end)))
  })

/** Refuses a server that runs, or that its node is about to start. */
const refuseUp = (instance: Instance) =>
  Effect.gen(function* () {
    const { start_again, status, waiting } = instance.file.get()
    const why = whyBusy(instance)
    if (why !== undefined) return yield* why
    const is = status === "offline" && (start_again || waiting === true) ? "about to start" : status
    if (is !== "offline") return yield* conflict("/", `the server is ${is}`, "Stop it first.")
  })

/** Keeps callers from the files of a server and the server from a start, until {@link claimed} ends. */
const close = ({ accesses }: Instance) =>
  Effect.suspend(() => {
    accesses.closed = "the server is being restored"
    return accesses.interrupt
  })

/** Gives a task the files of a server for itself. */
const claimed = <A, E>({ accesses }: Instance, operation_id: string, use: Effect.Effect<A, E>) =>
  Effect.acquireUseRelease(
    accesses.claim(`operation ${operation_id} (backup.restore)`),
    () => use,
    () =>
      Effect.sync(() => {
        accesses.exclusive = undefined
        accesses.closed = undefined
      })
  )

type RestoreTask = Extract<BackupTask, { readonly kind: "restore" }>

const refusalOf = (error: AccessError | ArchiveRefused): FileError =>
  error._tag === "ArchiveRefused"
    ? unprocessable(error.message, "Verify the backup, which names a damaged part.")
    : toTaskError(error)

const noUser = ({ message }: LaunchFailed) =>
  conflict("/", `the server has no user: ${message}`, "Read the log of the node.")

const partOf = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  instance: Instance,
  part: RestoredPart,
  operation_id: string
) {
  return { site: yield* makeSite(files, instance, {}), part, operation_id }
})

/** Restores files and folders of a backup into the files that are there. */
const makePartly = (files: InstanceFiles["Service"]) =>
  Effect.fnUntraced(function* (instance: Instance, part: RestoredPart, operation_id: string, bytes: Bytes) {
    const { folder } = instance
    const { limit, measured } = yield* files.diskUse(folder, instance.file.get().spec)
    const used = limit === 0 ? 0 : (yield* measured).bytes
    const parts = yield* partOf(files, instance, part, operation_id)
    // A daemon that was killed had begun to put it in place.
    if ((yield* files.placedNote(folder, operation_id)) !== undefined) return
    const user = yield* Effect.mapError(instance.user, noUser)
    yield* unpackPart(parts, {
      bytes,
      user,
      limit: limit === 0 ? undefined : Math.max(0, limit - used)
    })
    yield* files.finish(folder, instance.file.get().spec)
  })

/** Makes all files of a backup aside, and then puts them in place at once. */
const makeWholly = (files: InstanceFiles["Service"]) =>
  Effect.fnUntraced(function* (instance: Instance, operation_id: string, bytes: Bytes) {
    let refused: FileError | undefined
    const hidden: Array<string> = []
    let count = 0
    const onHidden = (path: string) => {
      count += 1
      if (hidden.length < MOST_NAMED) hidden.push(path)
    }
    const contents = ({ files: folder, limit, paths, user }: Restoring) =>
      Effect.mapError(
        receiveFiles(folder, paths, bytes, { keepsSame: true, limit, onHidden, user }),
        (error) => {
          if (error._tag === "IoError") return error
          refused = refusalOf(error)
          return new IoError({ code: "REFUSED", message: "the archive was refused" })
        }
      )
    const stage = Effect.gen(function* () {
      const user = yield* Effect.mapError(instance.user, noUser)
      const { spec } = instance.file.get()
      yield* Effect.mapError(files.stage(instance.folder, spec, user, contents), (error) => refused ?? error)
    })
    yield* instance.accesses.run(() => whyBusy(instance), stage)
    if (count === 0) return yield* Effect.as(instance.placeFiles(operation_id), undefined)
    const left = cleanText(
      `left out, because volumes or mounts of the server hide them: ${count} files of the backup, such as ${hidden.join(", ")}`
    )
    // A daemon that is started again says so, too.
    yield* instance.placeFiles(`${operation_id} ${left}`)
    yield* Effect.annotateLogs(Effect.logWarning(left), { server_id: instance.file.get().spec.id })
    return left
  })

/** Returns a function that restores a backup, and returns once the files are in place: what it has left out, if anything. */
export const makeRestore = (files: InstanceFiles["Service"]) => {
  const partly = makePartly(files)
  const wholly = makeWholly(files)
  return Effect.fnUntraced(function* (
    instance: Instance,
    { archive, part }: RestoreTask,
    operation_id: string,
    source: Source
  ) {
    const { from } = source
    const bytes = Stream.unwrap(
      Effect.map(from instanceof Arrival ? from.bytes : Effect.succeed<Bytes>(from), (read) =>
        decompressed(
          archive.kind === undefined || from instanceof Arrival ? "tar.zst" : "tar",
          checked(read, archive, source)
        )
      )
    )
    const work = Effect.gen(function* () {
      yield* files.unstage(instance.folder)
      // The daemon was killed after the files had been put in place.
      const placed = yield* files.placedNote(instance.folder, operation_id)
      if (placed !== undefined) return placed
      yield* refuseUp(instance)
      yield* close(instance)
      yield* undoLeft(files, instance)
      if (part === undefined)
        return yield* Effect.andThen(endLeft(instance), wholly(instance, operation_id, bytes))
      const restored = partly(instance, part, operation_id, bytes)
      yield* instance.accesses.run(() => whyBusy(instance), restored)
      return undefined
    })
    return yield* claimed(instance, operation_id, work)
  }, Effect.mapError(refusalOf))
}

/**
 * Removes what an unfinished restore has left. Files that are on their way into place get there; then it returns what the
 * restore has left out.
 */
export const cancelRestore = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  instance: Instance,
  { part }: RestoreTask,
  operation_id: string
) {
  yield* files.unstage(instance.folder)
  if (part !== undefined) {
    const placed = Effect.flatMap(partOf(files, instance, part, operation_id), placePart)
    yield* instance.accesses.run(() => whyBusy(instance), placed)
  }
  return yield* files.placedNote(instance.folder, operation_id)
}, Effect.mapError(toTaskError))

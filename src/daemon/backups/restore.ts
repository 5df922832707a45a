/** Restores a backup in place of the files of a server (spec 12.5). */
import { createHash } from "node:crypto"
import { Effect, Stream } from "effect"
import type { ArchiveFigures, BackupTask } from "../../contract/domain/Backup.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { whyBusy } from "../access/makeAccess.ts"
import { type AccessError, conflict, toFileError, unprocessable } from "../access/refused.ts"
import { Arrival, decompressed } from "../archives/source.ts"
import { IoError } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { receiveFiles } from "../files/importFiles.ts"
import type { Restoring } from "../files/restoreFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import type { ArchiveRefused } from "../transfer/unpack.ts"

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
        onBytes(read, archive.bytes)
      })
    )
    const end = Effect.suspend(() => {
      if (hash.digest("hex") !== archive.sha256)
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

/** Gives a task the files of a server for itself: callers do not reach them, and the server is not started. */
const closed = <A, E>(instance: Instance, operation_id: string, use: Effect.Effect<A, E>) => {
  const { accesses } = instance
  return Effect.acquireUseRelease(
    Effect.sync(() => {
      accesses.exclusive = `operation ${operation_id} (backup.restore)`
      accesses.closed = "the server is being restored"
    }),
    () => Effect.andThen(accesses.interrupt, use),
    () =>
      Effect.sync(() => {
        accesses.exclusive = undefined
        accesses.closed = undefined
      })
  )
}

/** Makes the files of a backup aside, and then puts them in place at once. */
export const makeRestore = (files: InstanceFiles["Service"]) =>
  Effect.fnUntraced(function* (
    instance: Instance,
    { archive }: Extract<BackupTask, { readonly kind: "restore" }>,
    operation_id: string,
    source: Source
  ): Effect.fn.Return<undefined, FileError> {
    const { from } = source
    let refused: FileError | undefined
    const refusing = (error: AccessError | ArchiveRefused) => {
      if (error._tag === "IoError") return error
      refused =
        error._tag === "ArchiveRefused"
          ? unprocessable(error.message, "Verify the backup, which names a damaged part.")
          : toFileError("/")(error)
      return new IoError({ code: "REFUSED", message: "the archive was refused" })
    }
    const contents = ({ files: folder, limit, paths, user }: Restoring) =>
      Effect.gen(function* () {
        const bytes = from instanceof Arrival ? yield* from.bytes : from
        const plain = decompressed("tar.zst", checked(bytes, archive, source))
        yield* receiveFiles(folder, paths, plain, { keepsSame: true, limit, user })
      }).pipe(Effect.mapError(refusing))
    const stage = Effect.gen(function* () {
      const { spec } = instance.file.get()
      yield* files.stage(instance.folder, spec, yield* instance.user, contents)
    })
    yield* Effect.gen(function* () {
      yield* files.unstage(instance.folder)
      // The daemon was killed after the files had been made.
      if ((yield* files.placedBy(instance.folder)) === operation_id) return
      yield* refuseUp(instance)
      const replaced = Effect.andThen(
        instance.accesses.run(() => whyBusy(instance), stage),
        instance.placeFiles(operation_id)
      )
      yield* closed(instance, operation_id, replaced)
    }).pipe(
      Effect.catchTag("LaunchFailed", ({ message }) =>
        Effect.fail(conflict("/", `the server has no user: ${message}`, "Read the log of the node."))
      ),
      Effect.mapError((error) => refused ?? toFileError("/")(error))
    )
    return undefined
  })

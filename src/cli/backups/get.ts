/** `muster backups get`. */
import { createHash } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { Console, Effect, Stream } from "effect"
import { Argument } from "effect/cli"
import type { Backup } from "../../contract/domain/Backup.ts"
import { io } from "../../daemon/disk/fsio.ts"
import { toStandardOutput } from "../files/content.ts"
import { localTarget } from "../files/get.ts"
import { partName, within } from "../files/localNames.ts"
import { type Progress, withProgress } from "../files/progress.ts"
import { backupArgument, backupNamed } from "../shared/backup.ts"
import { command } from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask, askStream } from "../shared/musterClient.ts"
import { sizeText } from "../shared/output.ts"

const { O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants

const bytesOf = (backup: Backup) =>
  askStream((muster) => Stream.unwrap(muster.backups.archive({ params: { backup: backup.id }, query: {} })))

/** Passes on the bytes of a backup. @error CommandError their digest is not the one of the backup (failed) */
const checked = (backup: Backup) => {
  const hash = createHash("sha256")
  return bytesOf(backup).pipe(
    Stream.tap((chunk) => Effect.sync(() => hash.update(chunk))),
    Stream.concat(
      Stream.unwrap(
        Effect.suspend(() => {
          const digest = hash.digest("hex")
          if (digest === backup.sha256) return Effect.succeed(Stream.empty)
          return new CommandError({
            status: "failed",
            message: `the SHA-256 of the download is ${digest}, and the backup has ${backup.sha256}: download it again. If it differs again, \`muster backups verify ${backup.id}\` names the damaged part.`
          })
        })
      )
    )
  )
}

/** Downloads a backup beside its place, and puts it there once it is whole. */
const receive = Effect.fnUntraced(function* (
  backup: Backup,
  target: Buffer,
  part: Buffer,
  progress: Progress
) {
  const written = Effect.gen(function* () {
    const handle = yield* Effect.acquireRelease(
      io(`create ${part}`, () => fs.open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600)),
      (handle) => Effect.promise(() => handle.close())
    )
    yield* Stream.runForEach(checked(backup), (chunk) =>
      Effect.map(
        io(`write ${part}`, () => handle.appendFile(chunk)),
        () => progress.moved(chunk.length)
      )
    )
    yield* io(`write ${part}`, () => handle.sync())
  }).pipe(Effect.scoped)
  yield* written.pipe(
    Effect.andThen(io(`replace ${target}`, () => fs.rename(part, target))),
    Effect.onError(() => Effect.promise(() => fs.rm(part, { force: true }).catch(() => {})))
  )
})

export const get = command("get", {
  description:
    "Download a backup as tar.zst, and compare it with its SHA-256. It arrives as LOCAL.part and replaces LOCAL once it is whole.",
  short: "Download a backup",
  examples: {
    "muster backups get lobby:latest": "Into the current folder, as SERVER-BACKUP.tar.zst",
    "muster backups get 5hq1r0p9v2m8d4kx lobby.tar.zst": "As a file",
    "muster backups get lobby:latest - | tar --zstd -t": "To standard output"
  },
  input: {
    backup: backupArgument,
    local: Argument.String("local").pipe(
      Argument.withDescription("A file, a folder, or - for standard output; default: the current folder"),
      Argument.withDefault(".")
    )
  },
  *run({ backup: text, local }) {
    const named = yield* backupNamed(text)
    // The download says why a backup has no archive.
    const backup = yield* ask((muster) => muster.backups.get({ params: { backup: named.id } }))
    if (local === "-") return yield* Stream.run(checked(backup), toStandardOutput)
    const { folder, name } = yield* localTarget(local, `${backup.server_id}-${backup.id}.tar.zst`)
    const target = within(folder, name)
    yield* withProgress((progress) => {
      progress.begin(name.toString(), backup.stored_bytes)
      return receive(backup, target, within(folder, partName(name, backup.id)), progress)
    })
    yield* Console.log(`${target} has the backup ${backup.id} (${sizeText(backup.stored_bytes ?? 0)}).`)
  }
})

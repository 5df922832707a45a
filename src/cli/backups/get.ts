/** `muster backups get` and `muster backups files`. */
import { createHash } from "node:crypto"
import { createReadStream } from "node:fs"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Console, Effect, Option, Stream } from "effect"
import { Argument, Flag } from "effect/cli"
import type { Backup, BackupEntry } from "../../contract/domain/Backup.ts"
import { FilePath, nameOf } from "../../contract/domain/Files.ts"
import { type IoError, lstat, toIoError } from "../../daemon/disk/fsio.ts"
import { toStandardOutput } from "../files/content.ts"
import { localTarget } from "../files/get.ts"
import { partName, within } from "../files/localNames.ts"
import { withProgress } from "../files/progress.ts"
import { getFile, type Source } from "../files/receiveFile.ts"
import { nameAndTarget } from "../files/remotePath.ts"
import { LARGE, noteOf } from "../files/unfinished.ts"
import { backupArgument, backupNamed } from "../shared/backup.ts"
import { command, textArgument } from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask, askStream } from "../shared/musterClient.ts"
import { type Listing, outputFlags, printList, sizeText, wide } from "../shared/output.ts"

const otherBytes = ({ id, sha256 }: Backup, digest: string) =>
  CommandError.failed(
    `the SHA-256 of the download is ${digest}, and the backup has ${sha256}: download it again. If it differs again, \`muster backups verify ${id}\` names the damaged part.`
  )

const NOT_COMPARED =
  " It has no SHA-256 to compare; the node has compared each file with its own while it was sent."

/** A damaged part breaks the connection, too: the service responds then. */
const orDamaged =
  ({ id }: Backup, received: () => number) =>
  (error: CommandError) =>
    Effect.andThen(
      Effect.mapError(
        ask((muster) => muster.backups.get({ params: { backup: id } })),
        () => error
      ),
      error.status === "unreachable"
        ? CommandError.failed(
            `the download was broken off after ${received()} bytes: the backup may be damaged. \`muster backups verify ${id}\` names a damaged part; if there is none, download it again`
          )
        : error
    )

/** Passes on bytes of a backup. @error CommandError their digest is not the one of the backup (failed) */
const checked = <E, R>(backup: Backup, bytes: Stream.Stream<Uint8Array, E, R>) =>
  Stream.suspend(() => {
    const hash = createHash("sha256")
    const end = Effect.suspend(() => {
      const digest = hash.digest("hex")
      return digest === backup.sha256 ? Effect.void : otherBytes(backup, digest)
    })
    return Stream.concat(
      Stream.tap(bytes, (chunk) => Effect.sync(() => void hash.update(chunk))),
      Stream.fromEffectDrain(end)
    )
  })

/** Compares a downloaded file with the digest of its backup: an earlier command may have begun it. */
const checkFile = (backup: Backup) => (file: Buffer) =>
  Stream.runDrain(
    checked(
      backup,
      NodeStream.fromReadable<Uint8Array, IoError>({
        evaluate: () => createReadStream(file),
        onError: (cause) => toIoError(`read ${file}`, cause)
      })
    )
  )

export const get = command("get", {
  description:
    "Download a backup as tar.zst, and compare it with its SHA-256, or download one file of it. A backup of the kind written arrives with all files, not compressed, and without a SHA-256: its node compares each file with its own while it is sent. A download resumes by itself after a broken connection. It arrives as LOCAL.part and replaces LOCAL once it is whole; if the command ends before, the same command continues a download from 16 MiB on.",
  short: "Download a backup",
  examples: {
    "muster backups get lobby:latest": "Into the current folder, as SERVER-BACKUP.tar.zst",
    "muster backups get 5hq1r0p9v2m8d4kx lobby.tar.zst": "As a file",
    "muster backups get lobby:latest - | tar --zstd -t": "To standard output",
    "muster backups get lobby:latest --path /world/level.dat": "One file of it"
  },
  input: {
    backup: backupArgument,
    local: textArgument(
      "local",
      "A file, a folder, or - for standard output; default: the current folder"
    ).pipe(Argument.withDefault(".")),
    path: Flag.String("path").pipe(
      Flag.withDescription("Only this file of the backup, such as /world/level.dat"),
      Flag.withSchema(FilePath),
      Flag.optional
    )
  },
  *run({ backup: text, local, path: wanted }) {
    const named = yield* backupNamed(text)
    // The download says why a backup has no archive.
    const backup = yield* ask((muster) => muster.backups.get({ params: { backup: named.id } }))
    const path = Option.getOrUndefined(wanted)
    let received = 0
    const source: Source = {
      path: path ?? `the backup ${backup.id}`,
      read: (muster, options) =>
        muster.downloadBackup(backup.id, {
          ...options,
          ...(path === undefined ? {} : { path }),
          onProgress: ({ done }) => {
            received = (options.start ?? 0) + done
          }
        })
    }
    // The archive of the kind `written` is made with its base while it is sent: its digest is not known.
    const isMade = path === undefined && backup.kind === "written"
    const isChecked = path === undefined && !isMade
    const size = isMade ? backup.size_bytes : backup.stored_bytes
    const explained = orDamaged(backup, () => received)
    if (local === "-") {
      const bytes = Stream.catchTag(
        askStream((muster) => source.read(muster, {})),
        "CommandError",
        (error) => Stream.fromEffectDrain(explained(error))
      )
      return yield* Stream.run(isChecked ? checked(backup, bytes) : bytes, toStandardOutput)
    }
    const { folder, name } = yield* localTarget(
      local,
      path === undefined ? `${backup.server_id}-${backup.id}.tar.zst` : nameOf(path)
    )
    const target = within(folder, name)
    yield* withProgress(
      Effect.fnUntraced(function* (progress) {
        // Headers and padding add some bytes to an archive that is made.
        progress.begin(name.toString(), path === undefined ? size : undefined)
        const place = { id: `backup ${backup.id}`, path: path ?? "archive" }
        const noted = yield* noteOf("get", place, target, progress.say)
        const note = path === undefined && (size ?? 0) < LARGE ? undefined : noted
        const file = within(folder, partName(name, noted.key))
        const check = isChecked ? { check: checkFile(backup) } : {}
        yield* getFile(source, target, { file, mode: 0o600, note, ...check }, progress).pipe(
          Effect.catchTag("CommandError", explained)
        )
      })
    )
    yield* Console.log(
      path === undefined
        ? `${target} has the backup ${backup.id} (${sizeText((yield* lstat(target))?.size ?? 0)}).${isMade ? NOT_COMPARED : ""}`
        : `${target} has ${path} of the backup ${backup.id}.`
    )
  }
})

const entries: Listing<BackupEntry> = {
  id: ({ name }) => name,
  columns: {
    name: nameAndTarget,
    type: ({ type }) => type,
    size: ({ size, type }) => (type === "file" ? sizeText(size) : ""),
    modified: ({ modified_at }) => modified_at,
    mode: wide(({ mode }) => mode),
    sha256: wide(({ sha256 }) => sha256 ?? "")
  }
}

export const files = command("files", {
  description: "List a folder of a backup by name",
  examples: {
    "muster backups files lobby:latest": "The folder of the server",
    "muster backups files lobby:latest /world -o wide": "With permissions and digests"
  },
  input: {
    backup: backupArgument,
    path: textArgument("path", "A folder of the backup, such as /world; default: /").pipe(
      Argument.withSchema(FilePath),
      Argument.withDefault("/")
    ),
    ...outputFlags
  },
  *run({ backup: text, path, ...flags }) {
    const { id } = yield* backupNamed(text)
    const found = yield* Stream.runCollect(askStream((muster) => muster.backupFolder(id, path)))
    yield* printList(flags, entries, found, `${path} is empty.`)
  }
})

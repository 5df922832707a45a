import { Effect, Option, Semaphore, Stream } from "effect"
import type { ArchiveFigures } from "../../contract/domain/Backup.ts"
import type {
  ArchiveRange,
  ContentsOfBackup,
  LookInto,
  StoredBackup
} from "../../contract/nodeApi/NodeBackups.ts"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { conflict, toTaskError } from "../access/refused.ts"
import { decompressed } from "../archives/source.ts"
import { storedZstd, zstdOf } from "../packed/mergedTar.ts"
import { begun, contentsOf, lookInto } from "./browse.ts"
import { explained } from "./create.ts"
import { linesIn, readManifest, tarOf } from "./manifest.ts"
import { readArchive, readParts } from "./parts.ts"
import type { BackupTarget } from "./target.ts"

/** Lists of backups that are read at a time: each decompresses the index of its backup. */
const MOST_LISTS = 2

/** Reads and removes backups. */
export const makeStored = (isUsed: (backup_id: string) => boolean) => {
  const lists = Semaphore.makeUnsafe(MOST_LISTS)
  const manifestOf = Effect.fnUntraced(function* (
    target: BackupTarget,
    id: string,
    { manifest_sha256 }: ArchiveFigures
  ) {
    const manifest = yield* explained(readManifest(target, id, manifest_sha256))
    if (Option.isSome(manifest)) return manifest.value
    return yield* new FileRefused({
      status: 404,
      detail: `the target does not have backup ${id}`,
      hint: "Its objects were moved or removed; delete the backup."
    })
  })

  return {
    manifestOf,
    remove: Effect.fnUntraced(function* (target: BackupTarget, id: string) {
      if (isUsed(id)) return yield* conflict(`backup ${id}`, "a task works on it", "Wait until it has ended.")
      yield* explained(target.remove(id))
    }),
    archive: Effect.fnUntraced(function* (
      target: BackupTarget,
      { archive, id }: StoredBackup,
      range: ArchiveRange | undefined
    ) {
      const manifest = yield* manifestOf(target, id, archive)
      const { kind, parts } = manifest
      const bytes =
        kind === "written"
          ? range === undefined
            ? zstdOf(tarOf(target, manifest))
            : storedZstd((from) => tarOf(target, manifest, from), range)
          : range === undefined
            ? readArchive(target, manifest, archive.sha256)
            : readParts(target, parts, range.start, range.end + 1)
      return Stream.mapError(yield* explained(begun(bytes)), toTaskError)
    }),
    index: Effect.fnUntraced(function* (target: BackupTarget, { archive, id }: StoredBackup) {
      const manifest = yield* manifestOf(target, id, archive)
      const { base, index } = manifest
      const text = Stream.map(linesIn(target, manifest), (lines) =>
        Buffer.from(lines.map((line) => `${line}\n`).join(""))
      )
      const own = decompressed("tar.zst", readParts(target, index))
      return Stream.mapError(base === undefined ? own : text, toTaskError)
    }),
    look: Effect.fnUntraced(function* (target: BackupTarget, { archive, id }: StoredBackup, at: LookInto) {
      return yield* explained(lookInto(target, yield* manifestOf(target, id, archive), at))
    }, lists.withPermit),
    contents: Effect.fnUntraced(function* (
      target: BackupTarget,
      { archive, id }: StoredBackup,
      file: ContentsOfBackup
    ) {
      const bytes = yield* explained(contentsOf(target, yield* manifestOf(target, id, archive), file))
      return Stream.mapError(bytes, toTaskError)
    })
  }
}

/** The work of a task that makes a backup (spec 12.2, 12.3). */
import * as fs from "node:fs/promises"
import { Effect, Option } from "effect"
import type { BackupFigures, CreateTask, PackedFigures } from "../../contract/domain/Backup.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { whyClosed } from "../access/makeAccess.ts"
import { type AccessError, toFileError } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { makeSite } from "../access/scenes.ts"
import { io } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import { readManifest, writeManifest } from "./manifest.ts"
import { packServer } from "./pack.ts"
import { whileQuiet } from "./quiet.ts"
import type { BackupTarget } from "./target.ts"

/** Reports bytes: those that are done, and all if they are known. */
export type OnBytes = (done: number, total?: number) => void

export const explained = <A, E extends AccessError, R>(use: Effect.Effect<A, E, R>) =>
  Effect.mapError(use, toFileError("/"))

/** Returns the bytes of contents for which a restore has room: the disk limit and the base, or else the disk. */
const mostBytes = Effect.fnUntraced(function* (files: InstanceFiles["Service"], { folder, spec }: Site) {
  const { base, limit } = yield* files.diskUse(folder, spec)
  if (limit > 0) return limit + (yield* base)
  const { blocks, bsize } = yield* io("read the size of the disk", () => fs.statfs(folder))
  return blocks * bsize
})

/** Makes backups of servers. @param rate bytes a second that are read; 0: no limit */
export const makeCreate = (files: InstanceFiles["Service"], rate: number) =>
  Effect.fnUntraced(function* (
    target: BackupTarget,
    instance: Instance,
    { backup_id, exclude = [], quiesce, server }: CreateTask,
    operation_id: string,
    onBytes: OnBytes
  ): Effect.fn.Return<BackupFigures, FileError> {
    yield* explained(target.ready)
    const before = yield* explained(readManifest(target, backup_id))
    // The service or the daemon was restarted before the end was known.
    if (Option.isSome(before)) {
      const { figures, manifest_sha256 } = before.value
      return { ...figures, manifest_sha256 }
    }
    yield* explained(target.remove(backup_id))
    const created_at = yield* nowText
    const { spec } = instance.file.get()
    const pack = Effect.gen(function* () {
      onBytes(0)
      const site = yield* makeSite(files, instance, {})
      const most = yield* mostBytes(files, site)
      return yield* packServer(site, target, { id: backup_id, exclude, most, onBytes, rate })
    })
    const name = `operation ${operation_id} (backup.create)`
    const claim = (by: string | undefined) =>
      Effect.sync(() => {
        instance.accesses.exclusive = by
      })
    // Not within the access: a removal holds the turn that the release takes, and waits for the end of the access.
    const release = Effect.suspend(() =>
      quiesce === undefined ? Effect.void : Effect.ignore(instance.release)
    )
    const { packed, ...held } = yield* explained(
      Effect.acquireUseRelease(
        claim(name),
        () => instance.accesses.run(() => whyClosed(instance), whileQuiet(instance, quiesce, pack)),
        () => Effect.andThen(claim(undefined), release)
      )
    )
    const { archive, counts, frames, index } = packed
    const figures: PackedFigures = {
      ...counts,
      stored_bytes: archive.bytes,
      sha256: archive.sha256,
      ...held
    }
    const manifest = {
      format: 1 as const,
      id: backup_id,
      server_id: spec.id,
      kind: "full" as const,
      created_at,
      finished_at: yield* nowText,
      figures,
      parts: archive.parts,
      frames,
      index: index.parts,
      spec,
      server
    }
    return { ...figures, manifest_sha256: yield* explained(writeManifest(target, manifest)) }
  })

/** The work of a task that makes a backup (spec 12.2, 12.3). */
import * as fs from "node:fs/promises"
import { Effect, Option } from "effect"
import type { BackupFigures, CreateTask, PackedFigures } from "../../contract/domain/Backup.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { whyClosed } from "../access/makeAccess.ts"
import { type AccessError, toTaskError } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { makeSite } from "../access/scenes.ts"
import { io } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import { belowOf, checkBase, makeBases } from "./bases.ts"
import { lookInto } from "./browse.ts"
import { readManifest, writeManifest } from "./manifest.ts"
import { packServer } from "./pack.ts"
import type { Part } from "./parts.ts"
import { whileQuiet } from "./quiet.ts"
import type { BackupTarget } from "./target.ts"

/** Reports bytes: those that are done, and all if they are known. */
export type OnBytes = (done: number, total?: number) => void

const sumOf = (parts: ReadonlyArray<Part>) => parts.reduce((sum, { bytes }) => sum + bytes, 0)

export const explained = <A, E extends AccessError, R>(use: Effect.Effect<A, E, R>) =>
  Effect.mapError(use, toTaskError)

/** Returns the bytes of contents for which a restore has room: the disk limit and the base, or else the disk. */
const mostBytes = Effect.fnUntraced(function* (files: InstanceFiles["Service"], { folder, spec }: Site) {
  const { base, limit } = yield* files.diskUse(folder, spec)
  if (limit > 0) return limit + (yield* base)
  const { blocks, bsize } = yield* io("read the size of the disk", () => fs.statfs(folder))
  return blocks * bsize
})

/** Makes backups of servers. @param rate bytes a second that are read; 0: no limit */
export const makeCreate = (files: InstanceFiles["Service"], rate: number) => {
  const storeBase = makeBases(rate)
  return Effect.fnUntraced(function* (
    target: BackupTarget,
    instance: Instance,
    { backup_id, contents, exclude = [], quiesce, server }: CreateTask,
    operation_id: string,
    onBytes: OnBytes
  ): Effect.fn.Return<BackupFigures, FileError> {
    yield* explained(target.ready)
    const before = yield* explained(readManifest(target, backup_id))
    // The service or the daemon was restarted before the end was known.
    if (Option.isSome(before)) {
      const { base, figures, manifest_sha256 } = before.value
      if (base !== undefined) yield* explained(checkBase(target, base))
      return { ...figures, manifest_sha256 }
    }
    yield* explained(target.remove(backup_id))
    const created_at = yield* nowText
    const { spec } = instance.file.get()
    /** Stores the base before the server is held still. */
    const prepare = Effect.gen(function* () {
      const below = yield* belowOf(yield* makeSite(files, instance, {}), contents)
      if (below === undefined) return { below }
      const onRead = quiesce === undefined ? onBytes : () => {}
      return { below, base: yield* storeBase(target, below.base, onRead) }
    })
    const pack = Effect.fnUntraced(function* ({ base, below }: Effect.Success<typeof prepare>) {
      onBytes(0)
      const site = yield* makeSite(files, instance, {})
      const most = yield* mostBytes(files, site)
      const after = base && { tar: base.bytes, bytes: sumOf(base.parts) }
      const prefix = `${backup_id}/`
      const packed = yield* packServer(site, target, { prefix, after, below, exclude, most, onBytes, rate })
      return { ...packed, base }
    })
    const work = Effect.flatMap(prepare, (made) => whileQuiet(instance, quiesce, pack(made)))
    const name = `operation ${operation_id} (backup.create)`
    const claim = (by: string | undefined) =>
      Effect.sync(() => {
        instance.accesses.exclusive = by
      })
    // Not within the access: a removal holds the turn that the release takes, and waits for the end of the access.
    const release = Effect.ignore(instance.release)
    const { packed, ...held } = yield* explained(
      Effect.acquireUseRelease(
        claim(name),
        () => instance.accesses.run(() => whyClosed(instance), work),
        () => Effect.andThen(claim(undefined), release)
      )
    )
    const { archive, base, counts, frames, index } = packed
    const { software, version } = spec.definition
    const kind = base === undefined ? ("full" as const) : ("written" as const)
    const figures: PackedFigures = {
      ...counts,
      stored_bytes: archive.bytes,
      sha256: archive.sha256,
      kind,
      ...(base === undefined ? {} : { base: { software, version, digest: base.digest } }),
      ...held
    }
    const sized = { path: "/", limit: 0, measures: true }
    const { archive_bytes = undefined } =
      base === undefined ? {} : yield* explained(lookInto(target, { base, index: index.parts }, sized))
    const manifest = {
      format: 1 as const,
      id: backup_id,
      server_id: spec.id,
      kind,
      ...(base === undefined ? {} : { base }),
      created_at,
      finished_at: yield* nowText,
      figures,
      parts: archive.parts,
      frames,
      index: index.parts,
      ...(archive_bytes === undefined ? {} : { archive_bytes }),
      spec,
      server
    }
    const manifest_sha256 = yield* explained(writeManifest(target, manifest))
    if (base !== undefined) yield* explained(checkBase(target, base))
    return { ...figures, manifest_sha256 }
  })
}

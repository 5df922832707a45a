/** The work of a task that makes a backup (spec 12.2, 12.3). */
import * as fs from "node:fs/promises"
import { Deferred, Effect, Fiber, Option, type Scope } from "effect"
import type { BackupFigures, CreateTask, PackedFigures } from "../../contract/domain/Backup.ts"
import { megabytes } from "../../contract/domain/Limits.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import { whyClosed } from "../access/makeAccess.ts"
import { type AccessError, toTaskError } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { makeSite, undoLeft } from "../access/scenes.ts"
import { ENTRY_BYTES } from "../archives/format.ts"
import { io, makeClosedFolder, removeTree } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import { belowOf, checkBase, makeBases } from "./bases.ts"
import { lookInto } from "./browse.ts"
import { readManifest, writeManifest } from "./manifest.ts"
import { packServer } from "./pack.ts"
import type { Part } from "./parts.ts"
import { whileQuiet } from "./quiet.ts"
import { type BackupTarget, roomIn } from "./target.ts"

/** Reports bytes: those that are done, and all if they are known. */
export type OnBytes = (done: number, total?: number) => void

const sumOf = (parts: ReadonlyArray<Part>) => parts.reduce((sum, { bytes }) => sum + bytes, 0)

export const explained = <A, E extends AccessError, R>(use: Effect.Effect<A, E, R>) =>
  Effect.mapError(use, toTaskError)

/** Returns the bytes of contents for which a restore has room: the disk limit and the base, or else the disk. */
const mostBytes = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  { folder, spec }: Pick<Site, "folder" | "spec">
) {
  const { base, limit } = yield* files.diskUse(folder, spec)
  if (limit > 0) return limit + (yield* base)
  const { blocks, bsize } = yield* io("read the size of the disk", () => fs.statfs(folder))
  return blocks * bsize
})

/** Returns why the server has no room for a backup of it, if so. One that was deleted meanwhile says nothing. */
export const whyNoRoom = Effect.fnUntraced(
  function* (files: InstanceFiles["Service"], { file, folder }: Instance, backup: BackupFigures) {
    const most = yield* mostBytes(files, { folder, spec: file.get().spec })
    const needed = backup.size_bytes + backup.files * ENTRY_BYTES
    return needed <= most
      ? undefined
      : `a restore of it needs ${megabytes(needed)}, and the server has room for ${megabytes(most)}: raise its disk_space`
  },
  Effect.orElseSucceed(() => undefined)
)

/**
 * Makes an empty folder until the scope closes, if the disk lets it. A block that a server overwrites while a copy shares it
 * takes room of the disk, and for a moment of the limit: file systems have the free bytes of a quota as those of its folders.
 */
const makeHeld = Effect.fnUntraced(
  function* (folder: string, layer: string, reserve: number) {
    yield* Effect.acquireRelease(Effect.andThen(removeTree(folder), makeClosedFolder(folder)), () =>
      Effect.ignore(removeTree(folder))
    )
    const { free, kept } = yield* roomIn(folder, reserve)
    const limited = yield* roomIn(layer, 0)
    return { folder, room: Math.min(free - kept, limited.free) }
  },
  Effect.orElseSucceed(() => undefined)
)

/**
 * Makes backups of servers, one at a time, which read at most `rate` bytes a second (0: no limit).
 * @param folder for copies that are packed once the server is not held still any more
 */
export const makeCreate = (
  files: InstanceFiles["Service"],
  { rate, reserve }: { readonly rate: number; readonly reserve: number },
  folder: string
) => {
  const storeBase = makeBases(rate)
  return Effect.fnUntraced(function* (
    target: BackupTarget,
    instance: Instance,
    { backup_id, contents, exclude = [], quiesce, server }: CreateTask,
    operation_id: string,
    onBytes: OnBytes
  ): Effect.fn.Return<BackupFigures, FileError, Scope.Scope> {
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
      yield* undoLeft(files, instance)
      const below = yield* belowOf(yield* makeSite(files, instance, {}), contents)
      if (below === undefined) return { below }
      const onRead = quiesce === undefined ? onBytes : () => {}
      return { below, base: yield* storeBase(target, below.base, onRead) }
    })
    const pack = Effect.fnUntraced(function* (
      { base, below }: Effect.Success<typeof prepare>,
      onHeld: Effect.Effect<unknown>
    ) {
      onBytes(0)
      const site = yield* makeSite(files, instance, {})
      // All of an overlay that a server has over its base is in one layer.
      const isHeld =
        quiesce !== undefined && site.layout.written.length === (below?.upper === undefined ? 0 : 1)
      const layer = site.layout.written[0]?.upper ?? site.layout.root
      const held = isHeld ? yield* makeHeld(folder, layer, reserve) : undefined
      const most = yield* mostBytes(files, site)
      const after = base && { tar: base.bytes, bytes: sumOf(base.parts) }
      const prefix = `${backup_id}/`
      const options = { prefix, after, below, exclude, held, most, onBytes, onHeld, rate }
      return { ...(yield* packServer(site, target, options)), base }
    }, Effect.scoped)
    const scope = yield* Effect.scope
    /** Packs the files, and returns once they are held or packed. */
    const begin = Effect.fnUntraced(function* (made: Effect.Success<typeof prepare>) {
      const held = yield* Deferred.make<void>()
      const packing = yield* Effect.forkIn(pack(made, Deferred.succeed(held, undefined)), scope)
      const begun = Effect.raceFirst(Deferred.await(held), Fiber.join(packing))
      return yield* Effect.as(
        Effect.onError(begun, () => Fiber.interrupt(packing)),
        packing
      )
    })
    const work = Effect.flatMap(prepare, (made) => whileQuiet(instance, quiesce, begin(made)))
    const name = `operation ${operation_id} (backup.create)`
    const unclaimed = Effect.sync(() => {
      instance.accesses.exclusive = undefined
    })
    // Not within the access: a removal holds the turn that the release takes, and waits for the end of the access.
    const release = Effect.ignore(instance.release)
    const { packed: packing, ...held } = yield* explained(
      Effect.acquireUseRelease(
        instance.accesses.claim(name),
        () => instance.accesses.run(() => whyClosed(instance), work),
        () => Effect.andThen(unclaimed, release)
      )
    )
    const { archive, base, counts, frames, index } = yield* explained(Fiber.join(packing))
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
  }, Effect.scoped)
}

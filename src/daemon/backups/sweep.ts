/** Removes what no backup of a target needs (spec 12.3, 12.12), a day after it was written. */
import { basename } from "node:path"
import { Clock, Effect, FiberMap, Option, Result, Schedule } from "effect"
import type { TargetAccess } from "../../contract/domain/BackupTarget.ts"
import { serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { IoError } from "../disk/fsio.ts"
import { readManifest, StoredBase, unseal } from "./manifest.ts"
import {
  type BackupTarget,
  baseId,
  idOfBase,
  type Listed,
  MANIFEST,
  manifestKey,
  newestOf,
  TEST
} from "./target.ts"

/** Age at which an object that no backup needs is removed, in ms. */
const ABANDONED = 24 * 60 * 60 * 1000

/** Time between a removal and the sweep after it, in ms: one sweep looks at all removals of a round. */
const PAUSE = 60_000

/** The beginning of the names of objects that were stored together. */
const together = /^(?:[a-z][a-z0-9]{11}-)?/

const keysOf = ({ index, parts }: Pick<StoredBase, "index" | "parts">) =>
  [...parts, ...index].map(({ key }) => key)

/** Returns the names of the objects that the manifest of a base has. One that is damaged has none. */
const namesOf = (target: BackupTarget, id: string) =>
  unseal(target, id, StoredBase).pipe(
    Effect.map(
      (base) => new Set(Option.match(base, { onNone: () => [], onSome: keysOf }).map((key) => basename(key)))
    ),
    Effect.catchIf(
      (error) => error instanceof IoError && error.code === "DAMAGED",
      () => Effect.succeed(new Set<string>())
    )
  )

/** Returns a function that removes what no backup of a target needs. @param isUsed whether a task works on a backup */
export const makeSweep = (isUsed: (backup_id: string) => boolean) => {
  /**
   * Removes parts of unfinished backups. Returns the objects of bases that backups need, unless a manifest is damaged, or
   * a backup is being written that may need any.
   */
  const sweepBackups = Effect.fnUntraced(function* (
    target: BackupTarget,
    found: ReadonlyArray<Listed>,
    isOld: (at: number) => boolean
  ) {
    const needed = new Set<string>()
    const damaged: Array<string> = []
    let isWriting = false
    for (const { at, id, objects } of found) {
      if (idOfBase(id) !== undefined) continue
      const manifest = yield* Effect.result(readManifest(target, id))
      if (Result.isFailure(manifest)) damaged.push(manifest.failure.message)
      else if (Option.isSome(manifest.success)) {
        const { base } = manifest.success.value
        if (base !== undefined)
          for (const key of [manifestKey(baseId(base.digest)), ...keysOf(base)]) needed.add(key)
      } else if (isOld(at) && !isUsed(id)) {
        yield* target.remove(id)
        yield* Effect.logInfo(`the parts of an unfinished backup were removed: ${id}`)
      } else if (!objects.has(TEST)) isWriting = true
    }
    if (damaged.length === 0) return isWriting ? undefined : needed
    yield* Effect.logWarning(
      `no base was removed, because backups that cannot be read may need it: delete them. ${damaged.length} in all, first: ${damaged[0]}`
    )
  })

  /**
   * Removes old objects of a base, and returns whether this was its manifest. The parts go after another look at the backups:
   * one that began meanwhile has its manifest by then, or fails because the one of its base is gone.
   */
  const sweepBase = Effect.fnUntraced(function* (
    target: BackupTarget,
    { id, objects }: Listed,
    needed: ReadonlySet<string>,
    isOld: (at: number) => boolean
  ) {
    if (isOld(objects.get(MANIFEST) ?? Number.POSITIVE_INFINITY) && !needed.has(manifestKey(id))) {
      const now = (yield* target.list).find((one) => one.id === id)?.objects.get(MANIFEST)
      // A backup that began meanwhile has written it again.
      if (now === undefined || !isOld(now)) return false
      yield* target.remove(id, [MANIFEST])
      yield* Effect.logInfo(`a base that no backup needs was removed: ${id}`)
      return true
    }
    const own = yield* namesOf(target, id)
    const groups = Map.groupBy(objects, ([name]) => together.exec(name)?.[0])
    const names = [...groups.values()]
      .filter((group) => isOld(newestOf(new Map(group))))
      .flatMap((group) => group.map(([name]) => name))
      .filter((name) => name !== MANIFEST && !own.has(name) && !needed.has(`${id}/${name}`))
    if (names.length > 0) yield* target.remove(id, names)
    return false
  })

  const sweepOnce = Effect.fnUntraced(function* (target: BackupTarget, now?: number) {
    const found = yield* target.list
    const latest = now ?? found.reduce((newest, { at }) => Math.max(newest, at), 0)
    const isOld = (at: number) => latest - at >= ABANDONED
    const needed = yield* sweepBackups(target, found, isOld)
    if (needed === undefined) return false
    const bases = found.filter(({ id }) => idOfBase(id) !== undefined)
    return (yield* Effect.forEach(bases, (base) => sweepBase(target, base, needed, isOld))).includes(true)
  })

  /** @param now the time of the target, in ms since the epoch; default: its newest object, which was written just now */
  return (target: BackupTarget, now?: number) =>
    sweepOnce(target, now).pipe(
      Effect.repeat({ while: (isAgain) => isAgain, times: 1 }),
      Effect.catch(({ message }) => Effect.logWarning(`parts of backups were not removed: ${message}`)),
      Effect.asVoid
    )
}

/** Writes an object, whose time is the one of the target, and sweeps. A sweep that is killed leaves it as parts of a backup. */
const sweepAt = Effect.fnUntraced(
  function* (target: BackupTarget, sweep: ReturnType<typeof makeSweep>) {
    const id = serverId(idBytes(16))
    yield* Effect.scoped(Effect.flatMap(target.put(`${id}/${TEST}`), (object) => object.end()))
    yield* Effect.ensuring(sweep(target), Effect.ignore(target.remove(id)))
  },
  Effect.catch(({ message }) => Effect.logWarning(`bases of backups were not looked at: ${message}`))
)

/**
 * Sweeps the folder of the node each hour. The functions that it returns sweep another target: `made` once a day, after a
 * backup in it, and `removed` a minute after the last of some removals, and once more when their bases are a day old.
 */
export const makeCollect = Effect.fnUntraced(function* (
  node: BackupTarget,
  sweep: ReturnType<typeof makeSweep>
) {
  const fibers = yield* FiberMap.make<string>()
  const looked = new Map<string, number>()
  const own = Effect.flatMap(Clock.currentTimeMillis, (now) => sweep(node, now))
  yield* Effect.forkScoped(Effect.repeat(own, Schedule.spaced("1 hour")))
  /** Returns the name of a target, unless it is the folder of the node. */
  const placeOf = (access: TargetAccess) => {
    if (access.type === "s3") return JSON.stringify([access.endpoint, access.bucket, access.prefix])
    return access.folder
  }
  return {
    made: Effect.fnUntraced(function* (access: TargetAccess, target: BackupTarget) {
      const place = placeOf(access)
      const now = yield* elapsedMillis
      if (place === undefined || now - (looked.get(place) ?? -ABANDONED) < ABANDONED) return
      looked.set(place, now)
      yield* FiberMap.run(fibers, place, sweep(target))
    }),
    removed: Effect.fnUntraced(function* (access: TargetAccess, target: BackupTarget) {
      const place = placeOf(access)
      if (place === undefined) return
      const later = (millis: number) => Effect.delay(sweepAt(target, sweep), millis)
      yield* FiberMap.run(fibers, `removed ${place}`, Effect.andThen(later(PAUSE), later(ABANDONED)))
    })
  }
})

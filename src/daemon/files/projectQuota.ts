/**
 * Disk limits of folders that the file system enforces: project quotas of ext4 and xfs with the mount option
 * `prjquota`. By `chattr` (e2fsprogs) and `setquota` (quota).
 */
import { randomInt, randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { fileLimit } from "../../contract/domain/Limits.ts"
import { isNoRoom } from "../disk/foundOnce.ts"
import { IoError, io, lstat, makeFolder, mountTable, removeTree } from "../disk/fsio.ts"
import { mountOf } from "../disk/mountTable.ts"
import { runTool } from "../host/runTool.ts"
import { run } from "./mounts.ts"

/** Lower project numbers are for administrators. */
const FIRST = 1 << 20
const LAST = 0x7fff_ffff
const TRIAL_BYTES = 1024 * 1024
/** Free bytes that a trial needs before and after it. */
const TRIAL_ROOM = 8 * TRIAL_BYTES
const UNPRIVILEGED_UID = 65534
const PROBE = ".probe-quota-"

export interface ProjectQuota {
  /**
   * Whether the quota also applies to root. That of ext4 does not, except in an overlay, which writes without the right
   * to exceed quotas; in containers no process is root.
   */
  readonly stopsRoot: boolean
  begin(folder: string, project: number): Effect.Effect<void, IoError>
  /** Sets the limit of a project in bytes, and the limit of its files by `fileLimit`. 0 removes both. */
  limit(project: number, bytes: number): Effect.Effect<void, IoError>
}

export const newProject = (taken: ReadonlySet<number>): number => {
  let project = randomInt(FIRST, LAST)
  while (taken.has(project)) project = project === LAST ? FIRST : project + 1
  return project
}

const quotaAt = (mountpoint: string): Omit<ProjectQuota, "stopsRoot"> => ({
  begin: (folder, project) => run("set the project", ["chattr", "-p", String(project), "+P", "--", folder]),
  limit: (project, bytes) => {
    const most = ["0", String(Math.ceil(bytes / 1024)), "0", String(fileLimit(bytes))]
    return run("set the quota", ["setquota", "-P", String(project), ...most, mountpoint])
  }
})

/** Writes three times the limit, as another user if one is given; returns whether the write was stopped. */
const isStopped = Effect.fnUntraced(function* (folder: string, name: string, uid: number | undefined) {
  const { code } = yield* runTool(
    ["dd", "if=/dev/zero", `of=${name}`, `bs=${TRIAL_BYTES}`, "count=3", "conv=fsync"],
    // The working directory is set before the user, because parent folders may be closed to other users.
    { cwd: folder, stdio: "ignore", ...(uid === undefined ? {} : { uid, gid: uid }) }
  ).pipe(Effect.mapError((error) => new IoError({ code: "ENOSYS", message: error.message })))
  const size = (yield* lstat(join(folder, name)))?.size ?? 0
  return code !== 0 && size > 0 && size < 3 * TRIAL_BYTES
})

/** Fails if the disk itself may stop a trial. @error IoError `ENOSPC` */
const needRoom = Effect.fnUntraced(function* (folder: string) {
  const disk = yield* io(`look at the disk of ${folder}`, () => fs.statfs(folder))
  if (disk.bavail * disk.bsize >= TRIAL_ROOM) return
  return yield* new IoError({ code: "ENOSPC", message: "project quotas cannot be tried: disk full" })
})

const testQuota = Effect.fnUntraced(function* (quota: Omit<ProjectQuota, "stopsRoot">, folder: string) {
  const project = newProject(new Set())
  yield* quota.begin(folder, project)
  yield* Effect.acquireRelease(quota.limit(project, TRIAL_BYTES), () =>
    Effect.ignore(quota.limit(project, 0))
  )
  if (yield* isStopped(folder, "own", undefined)) return true
  yield* removeTree(join(folder, "own"))
  yield* io("open the folder", () => fs.chmod(folder, 0o777))
  if (process.geteuid?.() === 0 && (yield* isStopped(folder, "other", UNPRIVILEGED_UID))) return false
  return yield* new IoError({ code: "BROKEN", message: "the quota is not enforced" })
}, Effect.scoped)

/**
 * Returns the project quotas of a folder's file system; undefined: none, or they do not work.
 *
 * @error IoError `ENOSPC`: the disk has no room to try them
 */
export const probeQuota = Effect.fnUntraced(function* (dir: string) {
  const real = yield* io(dir, () => fs.realpath(dir))
  const mount = mountOf(real, yield* mountTable)
  if (mount === undefined || !mount.options.some((option) => /^p(rj)?quota$/.test(option))) return undefined
  const folder = join(dir, `${PROBE}${randomUUID()}`)
  const quota = quotaAt(mount.path)
  return yield* Effect.gen(function* () {
    yield* makeFolder(folder)
    yield* needRoom(folder)
    const found: ProjectQuota = { ...quota, stopsRoot: yield* testQuota(quota, folder) }
    yield* needRoom(folder)
    return found
  }).pipe(
    Effect.catchIf(
      (error) => !isNoRoom(error),
      (error) =>
        Effect.as(Effect.logWarning(`disk limits are enforced by measuring: ${error.message}`), undefined)
    ),
    Effect.ensuring(Effect.ignore(removeTree(folder)))
  )
})

import { randomInt, randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { diskLimitBytes, fileLimit, megabytes } from "../../contract/domain/Limits.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import {
  diskOf,
  IoError,
  io,
  listFolder,
  lstat,
  makeFolder,
  mountTable,
  orMissing,
  readText,
  removeTree
} from "../disk/fsio.ts"
import { mountOf } from "../disk/mountTable.ts"
import { foundOnce, isNoRoom } from "../disk/remedy.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { runTool } from "../host/runTool.ts"
import type { TreeSize } from "./copyTree.ts"
import { run } from "./mounts.ts"

/** Lower project numbers are for administrators. */
const FIRST = 1 << 20
const LAST = 0x7fff_ffff
const TRIAL_BYTES = 1024 * 1024
/** Free bytes that a trial needs before and after it. */
const TRIAL_ROOM = 8 * TRIAL_BYTES
const UNPRIVILEGED_UID = 65534
const PROBE = ".probe-quota-"

const newProject = (taken: ReadonlySet<number>): number => {
  let project = randomInt(FIRST, LAST)
  while (taken.has(project)) project = project === LAST ? FIRST : project + 1
  return project
}

const quotaAt = (mountpoint: string) => ({
  begin: (folder: string, project: number) =>
    run("set the project", ["chattr", "-p", String(project), "+P", "--", folder]),
  /** Sets the limit of a project in bytes, and the limit of its files by `fileLimit`. 0 removes both. */
  limit: (project: number, bytes: number) => {
    const most = ["0", String(Math.ceil(bytes / 1024)), "0", String(fileLimit(bytes))]
    return run("set the quota", ["setquota", "-P", String(project), ...most, mountpoint])
  }
})

type Quota = ReturnType<typeof quotaAt>

/** `stopsRoot`: whether it applies to root. On ext4 it does so only in an overlay; in containers no process is root. */
export type ProjectQuota = Quota & { readonly stopsRoot: boolean }

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
  if ((yield* diskOf(folder)).free >= TRIAL_ROOM) return
  return yield* new IoError({ code: "ENOSPC", message: "project quotas cannot be tried: disk full" })
})

const testQuota = Effect.fnUntraced(function* (quota: Quota, folder: string) {
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

/** Returns the working project quotas of a folder, if any. @error IoError `ENOSPC`: no room to try */
const probeQuota = Effect.fnUntraced(function* (dir: string) {
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

export const diskLimit = ({ definition }: ServerSpec): number => diskLimitBytes(definition.limits)

/** Returns why a usage exceeds a limit in bytes, if it does. */
export const beyond = ({ bytes, entries, unmeasured }: TreeSize, limit: number) => {
  const allowed = megabytes(limit)
  if (unmeasured !== undefined) return { used: `an unknown size (${unmeasured})`, allowed }
  if (bytes > limit) return { used: megabytes(bytes), allowed }
  const files = fileLimit(limit)
  return entries > files ? { used: `${entries} files and folders (at most ${files})`, allowed } : undefined
}

const projectPath = (folder: string) => join(folder, "project")

const readProject = Effect.fnUntraced(function* (folder: string) {
  const text = yield* readText(projectPath(folder)).pipe(orMissing(""))
  return /^\d{1,10}\n$/.test(text) ? Number(text) : undefined
})

/** Opens disk limits with a project per server, if the file system can. Otherwise usage has to be measured. */
export const openDiskLimits = Effect.fnUntraced(function* (
  serversDir: string,
  quotaOf: typeof probeQuota = probeQuota
) {
  const probe = Effect.tap(quotaOf(serversDir), (quota) =>
    quota === undefined ? Effect.void : Effect.logInfo("disk limits are enforced by project quota")
  )
  // While a full disk hides them, what is written is measured.
  const find = Effect.catchIf(yield* foundOnce(serversDir, probe), isNoRoom, ({ message }) =>
    Effect.as(Effect.logDebug(message), undefined)
  )
  yield* find
  const projects = new Map<string, number>()
  /** Folders with an enforced limit, in bytes. */
  const enforced = new Map<string, { readonly limit: number; readonly stopsRoot: boolean }>()
  for (const name of yield* listFolder(serversDir)) {
    const folder = join(serversDir, name)
    const project = yield* Effect.orElseSucceed(readProject(folder), () => undefined)
    if (project !== undefined) projects.set(folder, project)
  }

  const apply = Effect.fnUntraced(function* (
    quota: ProjectQuota,
    folder: string,
    spec: ServerSpec,
    project: number
  ) {
    const limit = diskLimit(spec)
    yield* quota.limit(project, limit)
    enforced.set(folder, { limit, stopsRoot: quota.stopsRoot })
  })

  const measured = (folder: string) => (error: IoError) => {
    enforced.delete(folder)
    return Effect.logWarning(`the disk limit of ${folder} is enforced by measuring: ${error.message}`)
  }

  return {
    /** Makes a folder and puts it, with its future contents, under the limit of its server. Without limits, does nothing. */
    begin: Effect.fnUntraced(function* (folder: string, spec: ServerSpec, dir: string) {
      const quota = diskLimit(spec) === 0 ? undefined : yield* find
      if (quota === undefined) return
      const project = projects.get(folder) ?? newProject(new Set(projects.values()))
      projects.set(folder, project)
      yield* makeFolder(dir)
      yield* writeAtomic(projectPath(folder), `${project}\n`).pipe(
        Effect.andThen(quota.begin(dir, project)),
        Effect.andThen(apply(quota, folder, spec, project)),
        Effect.catch(measured(folder))
      )
    }),
    /** Sets the limit of a server if it has changed, or is from before this start. */
    confirm: Effect.fnUntraced(function* (folder: string, spec: ServerSpec) {
      const project = projects.get(folder)
      if (project === undefined || enforced.get(folder)?.limit === diskLimit(spec)) return
      const quota = yield* find
      if (quota === undefined) return
      yield* Effect.catch(apply(quota, folder, spec, project), measured(folder))
    }),
    /** Follows the renaming of a folder: the project of its files stays reserved until `release(to)`. */
    rename: (folder: string, to: string): void => {
      const project = projects.get(folder)
      if (project !== undefined) projects.set(to, project)
      projects.delete(folder)
      enforced.delete(folder)
    },
    release: Effect.fnUntraced(function* (folder: string) {
      const project = projects.get(folder)
      projects.delete(folder)
      enforced.delete(folder)
      const quota = project === undefined ? undefined : yield* Effect.orElseSucceed(find, () => undefined)
      if (project !== undefined && quota !== undefined) yield* Effect.ignore(quota.limit(project, 0))
    }),
    /** Whether the file system enforces the limit. `layered`: the files are an overlay. */
    isEnforced: (folder: string, layered: boolean) =>
      enforced.has(folder) && (layered || enforced.get(folder)?.stopsRoot === true)
  }
})
export type DiskLimits = Effect.Success<ReturnType<typeof openDiskLimits>>

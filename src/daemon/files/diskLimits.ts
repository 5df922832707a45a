import { join } from "node:path"
import { Effect } from "effect"
import { diskLimitBytes, fileLimit, megabytes } from "../../contract/domain/Limits.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { foundOnce, isNoRoom } from "../disk/foundOnce.ts"
import { type IoError, listFolder, makeFolder, orMissing, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import type { TreeSize } from "./copyTree.ts"
import { newProject, type ProjectQuota, probeQuota } from "./projectQuota.ts"

/** Returns the disk limit of a server in bytes; 0: no limit. */
export const diskLimit = ({ definition }: ServerSpec): number => diskLimitBytes(definition.limits)

/** A server beyond its disk limit, or with files that cannot be measured, for messages. */
export interface OverLimit {
  readonly used: string
  readonly allowed: string
}

/** Returns why a usage is beyond a limit in bytes; undefined: it is within. */
export const beyond = ({ bytes, entries, unmeasured }: TreeSize, limit: number): OverLimit | undefined => {
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

/**
 * Opens disk limits that the file system enforces, if it can: each server has a project, recorded in its folder.
 * Otherwise these functions do nothing, and usage has to be measured.
 */
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

import { join } from "node:path"
import { Effect } from "effect"
import { megabytes } from "../../domain/Limits.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import { type IoError, listFolder, orMissing, readText, writeAtomic } from "../disk/fsio.ts"
import { newProject, probeQuota } from "./projectQuota.ts"

const MB = 1_000_000

/** What a server may write, in bytes; 0: no limit. */
export const diskLimit = ({ definition }: ServerSpec): number =>
  Math.round((definition.limits.disk_space ?? 0) * MB)

/** A server that holds more than it may, in bytes, or what cannot be measured. */
export interface OverLimit {
  readonly written: number
  readonly limit: number
  /** Why it may be more than `written`. */
  readonly unmeasured: string | undefined
}

/** What a server holds, as messages say it. */
export const heldBy = ({ unmeasured, written }: OverLimit): string =>
  unmeasured === undefined ? megabytes(written) : `an unknown size (${unmeasured})`

const projectPath = (folder: string) => join(folder, "project")

/** The project that a server's folder has been given; undefined where it has none. */
const readProject = Effect.fnUntraced(function* (folder: string) {
  const text = yield* readText(projectPath(folder)).pipe(orMissing(""))
  return /^\d{1,10}\n$/.test(text) ? Number(text) : undefined
})

/**
 * Disk limits that the file system itself enforces, where it can: each server has a project of its own, kept in its
 * folder. Elsewhere nothing is done here, and what is written has to be measured.
 */
export const openDiskLimits = Effect.fnUntraced(function* (servers_dir: string) {
  const quota = yield* probeQuota(servers_dir)
  const projects = new Map<string, number>()
  const enforced = new Set<string>()
  if (quota !== undefined) {
    yield* Effect.logInfo("disk limits are enforced by project quota")
    for (const name of yield* listFolder(servers_dir)) {
      const folder = join(servers_dir, name)
      const project = yield* Effect.orElseSucceed(readProject(folder), () => undefined)
      if (project !== undefined) projects.set(folder, project)
    }
  }

  const apply = Effect.fnUntraced(function* (folder: string, spec: ServerSpec, project: number) {
    if (quota === undefined) return
    yield* quota.limit(project, diskLimit(spec))
    enforced.add(folder)
  })

  const measured = (folder: string) => (error: IoError) => {
    enforced.delete(folder)
    return Effect.logWarning(`the disk limit of ${folder} is enforced by measuring: ${error.message}`)
  }

  return {
    /** Puts a folder that is empty, and all that will be in it, under the limit of its server. */
    begin: Effect.fnUntraced(function* (folder: string, spec: ServerSpec, dir: string) {
      if (quota === undefined || diskLimit(spec) === 0) return
      const project = projects.get(folder) ?? newProject(new Set(projects.values()))
      projects.set(folder, project)
      yield* writeAtomic(projectPath(folder), `${project}\n`).pipe(
        Effect.andThen(quota.begin(dir, project)),
        Effect.andThen(apply(folder, spec, project)),
        Effect.catch(measured(folder))
      )
    }),
    /** Sees to it that the limit of a server from before this start holds. */
    confirm: Effect.fnUntraced(function* (folder: string, spec: ServerSpec) {
      const project = projects.get(folder)
      if (project === undefined || enforced.has(folder)) return
      yield* Effect.catch(apply(folder, spec, project), measured(folder))
    }),
    release: Effect.fnUntraced(function* (folder: string) {
      const project = projects.get(folder)
      projects.delete(folder)
      enforced.delete(folder)
      if (project !== undefined && quota !== undefined) yield* Effect.ignore(quota.limit(project, 0))
    }),
    /** Whether nothing has to be measured. `layered`: the server's files are an overlay. */
    isEnforced: (folder: string, layered: boolean) =>
      enforced.has(folder) && (layered || quota?.stops_root === true)
  }
})

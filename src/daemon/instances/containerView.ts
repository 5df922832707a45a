/** What is different for a server that runs in a container. */
import * as fs from "node:fs/promises"
import { isAbsolute, join, sep } from "node:path"
import { Effect } from "effect"
import type { RuntimeKind } from "../../domain/Node.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import { IoError, io, orMissing } from "../files/fsio.ts"
import type { FileSources } from "../files/InstanceFiles.ts"
import type { SharedFolder } from "../runtime/Runtime.ts"

/**
 * The configuration as the server's process sees it: a container has an address of its own, at which the engine
 * hands in what comes to the allocated one, so that the server listens on all it has.
 */
export const seenFrom = (kind: RuntimeKind, spec: ServerSpec): ServerSpec =>
  kind === "process"
    ? spec
    : {
        ...spec,
        allocations: {
          ...spec.allocations,
          default: { ...spec.allocations.default, ip: "0.0.0.0" }
        }
      }

/** The real path, when it is one of the roots or below; undefined when there is nothing. */
const realBelow = Effect.fnUntraced(function* (path: string, roots: ReadonlyArray<string>, what: string) {
  const real = yield* io(what, () => fs.realpath(path)).pipe(orMissing(undefined))
  if (real === undefined) return undefined
  for (const root of roots) {
    const top = yield* io(root, () => fs.realpath(root)).pipe(orMissing(undefined))
    if (top !== undefined && (real === top || real.startsWith(top + sep))) return real
  }
  return yield* new IoError({ code: "REFUSED", message: `${what} leads out of its folder` })
})

/**
 * The folders that the links of an instance lead to. Taken from the blueprint, never from the links: the server can
 * change those.
 */
export const sharedFolders = Effect.fnUntraced(function* (
  { definition }: ServerSpec,
  { allowed_mounts, volumes_dir }: FileSources
) {
  const folders: Array<SharedFolder> = []
  for (const { mode, name, source } of definition.volumes) {
    if (mode === "cow") continue
    const path = yield* realBelow(join(volumes_dir, source), [volumes_dir], `volume ${name}`)
    if (path !== undefined) folders.push({ path, read_only: mode === "ro", volume: true })
  }
  for (const { mode, source } of definition.mounts) {
    if (!isAbsolute(source)) continue // refused where instances are made
    const path = yield* realBelow(source, allowed_mounts, `mount ${source}`)
    if (path !== undefined) folders.push({ path, read_only: mode === "ro", volume: false })
  }
  return folders
})

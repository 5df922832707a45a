/** The servers of this node that write volumes: such a volume does not become a layer of others. */
import * as fs from "node:fs/promises"
import { join, sep } from "node:path"
import { Effect } from "effect"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import { io } from "../disk/fsio.ts"
import { isAbove } from "./filePlan.ts"
import type { Source } from "./sources.ts"

export const makeVolumeWriters = ({ volumesDir }: { readonly volumesDir: string }) => {
  /** The servers of the node, by folder. */
  const known = new Map<string, ServerSpec>()

  /** Returns the ids of the other servers that write a volume. */
  const writersOf = Effect.fnUntraced(function* (folder: string, real: string) {
    const others = [...known].filter(([other]) => other !== folder)
    const found = yield* Effect.filter(others, ([, { definition }]) =>
      Effect.map(writtenVolumes(definition.volumes), (paths) => paths.includes(real))
    )
    return found.map(([, { id }]) => id)
  })

  /** Returns the paths of volumes that servers write, except missing and refused ones. */
  const writtenVolumes = Effect.fnUntraced(function* (volumes: ServerSpec["definition"]["volumes"]) {
    const names = new Set(volumes.flatMap(({ mode, source }) => (mode === "rw" ? [source] : [])))
    const found = yield* Effect.forEach(names, (source) =>
      io(source, () => fs.realpath(join(volumesDir, source))).pipe(Effect.orElseSucceed(() => undefined))
    )
    return found.filter((path) => path !== undefined)
  })

  /**
   * Returns whether to copy a volume: one that a server of this node writes must not change while it is a layer.
   */
  const isWritten = Effect.gen(function* () {
    const found = yield* writtenVolumes([...known.values()].flatMap((spec) => spec.definition.volumes))
    const parts = found.map((path) => path.split(sep))
    return ({ real }: Source) => {
      const own = real.split(sep)
      return parts.some((one) => isAbove(one, own) || isAbove(own, one))
    }
  })

  return {
    writersOf,
    isWritten,
    register: (folder: string, spec: ServerSpec) => {
      known.set(folder, spec)
    },
    forget: (folder: string) => {
      known.delete(folder)
    }
  }
}
export type VolumeWriters = ReturnType<typeof makeVolumeWriters>

/** What an instance is made of beside its base: volumes, mounts, copies, and where they go. Pure. */
import { Result } from "effect"
import type { Copy, Mount, Volume } from "../../domain/Blueprint.ts"
import type { ServerDefinition } from "../../domain/ServerDefinition.ts"
import { IoError } from "./fsio.ts"
import { partsOf } from "./safePath.ts"

export const refuse = (message: string) => new IoError({ code: "REFUSED", message })

/** A place in the instance folder. */
export interface Target {
  readonly parts: ReadonlyArray<string>
  /** As the blueprint writes it. */
  readonly target: string
}

export interface CowVolume extends Target {
  readonly volume: Volume
  /** Place among the blueprint's volumes: what a folder of its own is called after. */
  readonly index: number
}

/** What is not the instance's own: volumes with `rw` or `ro`, and mounts. */
export interface Shared extends Target {
  readonly of: { readonly volume: Volume } | { readonly mount: Mount }
  readonly read_only: boolean
}

export interface CopyEntry extends Target {
  readonly copy: Copy
}

export interface FilePlan {
  readonly cow: ReadonlyArray<CowVolume>
  /** Those above others first. */
  readonly shared: ReadonlyArray<Shared>
  readonly copies: ReadonlyArray<CopyEntry>
}

const CONTAINER_HOME = "/home/container"

/** Path of a target as blueprints write it: absolute means from the instance folder, as containers see it. */
export const targetParts = (target: string): Result.Result<ReadonlyArray<string>, IoError> => {
  const inside =
    target === CONTAINER_HOME || target.startsWith(`${CONTAINER_HOME}/`)
      ? target.slice(CONTAINER_HOME.length)
      : target
  return Result.mapError(partsOf(inside.replace(/^\/+/, "")), (error) =>
    refuse(`target ${target}: ${error.reason}`)
  )
}

/** Whether one place is the other or above it. */
export const isAbove = (above: ReadonlyArray<string>, parts: ReadonlyArray<string>): boolean =>
  above.length <= parts.length && above.every((part, index) => parts[index] === part)

const depth = (a: Target, b: Target) => a.parts.length - b.parts.length

/** Reads the targets of a definition; what lies in a shared folder would be written into it, and is refused. */
export const filePlan = (
  definition: Pick<ServerDefinition, "volumes" | "mounts" | "copy">
): Result.Result<FilePlan, IoError> =>
  Result.gen(function* () {
    const cow: Array<CowVolume> = []
    const places = new Map<string, Shared>()
    const copies: Array<CopyEntry> = []
    for (const [index, volume] of definition.volumes.entries()) {
      const { mode, target } = volume
      const parts = yield* targetParts(target)
      if (mode === "cow") cow.push({ volume, index, target, parts })
      else places.set(parts.join("/"), { of: { volume }, target, parts, read_only: mode === "ro" })
    }
    for (const mount of definition.mounts) {
      const { mode, target } = mount
      const parts = yield* targetParts(target)
      places.set(parts.join("/"), { of: { mount }, target, parts, read_only: mode === "ro" })
    }
    for (const copy of definition.copy) {
      copies.push({ copy, target: copy.target, parts: yield* targetParts(copy.target) })
    }
    // At one and the same place the last counts, and what is shared hides a copy.
    const shared = [...places.values()].sort(depth)
    const visible = cow.filter(({ parts }) => !places.has(parts.join("/")))
    for (const other of [...visible, ...shared, ...copies]) {
      const within = shared.find((one) => one !== other && isAbove(one.parts, other.parts))
      if (within !== undefined) {
        return yield* Result.fail(
          refuse(`target ${other.target}: it lies in ${within.target}, which is shared`)
        )
      }
    }
    return { cow: visible, shared, copies }
  })

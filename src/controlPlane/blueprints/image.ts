import { Result, Schema } from "effect"
import { ImageReference, referenceOf } from "../../contract/domain/Overrides.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { printable } from "./parse/problem.ts"
import { mapVersion } from "./parse/versions.ts"

export interface ImageChoice {
  /** As written: a key of the software's images, or an image reference. */
  readonly image: string | undefined
  readonly version: string
}

/** Returns the named image, else the mapped one, else the only one; empty for a process without an image. */
export const resolveImage = (software: Software, choice: ImageChoice): Result.Result<string, string> => {
  const { image, version } = choice
  if (image !== undefined) {
    const named = imageOf(software, image)
    if (named !== undefined) return Result.succeed(named)
    const keys = Object.keys(software.images).join(", ") || "none"
    return Schema.is(ImageReference)(image)
      ? Result.succeed(image)
      : Result.fail(
          `image \`${image}\` is neither a key of the images of software ${software.id} (${printable(keys)}) nor an image reference`
        )
  }
  const references = Object.values(software.images)
  if (references.length === 0) {
    return software.runtimes.includes("process")
      ? Result.succeed("")
      : Result.fail(`software ${software.id} has no images and runs in containers only; name an \`image\``)
  }
  const only = software.mappings.length === 0 && references.length === 1 ? references[0] : undefined
  const key = mapVersion(software.mappings, version)
  const mapped = only ?? (key === undefined ? undefined : (imageOf(software, key) ?? referenceOf(key)))
  return mapped === undefined
    ? Result.fail(`no image of software ${software.id} maps to version ${printable(version, 80)}`)
    : Result.succeed(mapped)
}

const imageOf = (software: Software, key: string): string | undefined =>
  Object.hasOwn(software.images, key) ? software.images[key] : undefined

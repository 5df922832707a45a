/** Patches of the config files of an instance, applied at every start (spec 4.9). */
import { Data, Effect, Option, Result } from "effect"
import type { ConfigPatch, ConfigPatches } from "../../contract/domain/ConfigPatch.ts"
import { type IoError, meaningOf } from "../disk/fsio.ts"
import {
  type FileTooLarge,
  type PathRefused,
  partsOf,
  readFileInside,
  writeFileInside
} from "../disk/safePath.ts"
import { checkFind, decodeText, type Encoding, encodeText, type Find, PatchProblem, shown } from "./find.ts"
import { patchAside } from "./patchAside.ts"
import { expandJson, type PlaceholderContext } from "./placeholders.ts"

/** A file that cannot be patched, by its name in the blueprint, and why; no file was written. */
export class ConfigPatchFailed extends Data.TaggedError("ConfigPatchFailed")<{
  readonly file: string
  readonly reason: string
  /** The code of the file system's refusal; e.g. `ENOSPC`. */
  readonly code?: string
}> {
  override get message() {
    return `cannot patch ${this.file}: ${this.reason}`
  }
}

const MIB = 1024 * 1024
const MAX_FILE_BYTES = 10 * MIB

const reasonOf = (error: PathRefused | FileTooLarge | IoError | PatchProblem): string => {
  switch (error._tag) {
    case "PathRefused":
      return `its path is refused: ${error.reason}`
    case "FileTooLarge":
      return `it is larger than ${error.maxBytes / MIB} MiB`
    case "IoError":
      return meaningOf(error.code) ?? `the file system says ${error.code}`
    case "PatchProblem":
      return error.reason
  }
}

interface Patched {
  readonly file: string
  readonly encoding: Encoding
  readonly before: string | undefined
  readonly after: string | undefined
  readonly warnings: ReadonlyArray<string>
}

const expandFind = (patch: ConfigPatch, context: PlaceholderContext): Result.Result<Find, PatchProblem> =>
  Result.gen(function* () {
    // before any walk over the values: their nesting has no bound yet
    yield* checkFind(patch.find)
    const values: Array<readonly [string, Find[string]]> = []
    for (const [key, value] of Object.entries(patch.find)) {
      const expanded = yield* Result.mapError(
        expandJson(value, context, patch.parser !== "file"),
        ({ message }) => new PatchProblem({ reason: `the key ${shown(key)} has an ${message}` })
      )
      values.push([key, expanded])
    }
    return Object.fromEntries(values)
  })

const readText = Effect.fnUntraced(function* (root: string, file: string, parser: ConfigPatch["parser"]) {
  const bytes = yield* readFileInside(root, file, MAX_FILE_BYTES)
  if (Option.isNone(bytes)) return { text: undefined, encoding: "utf8" as const }
  return yield* Effect.fromResult(decodeText(bytes.value, parser))
})

const patchOne = Effect.fnUntraced(function* (
  root: string,
  file: string,
  patch: ConfigPatch,
  context: PlaceholderContext,
  earlier: Patched | undefined
) {
  const find = yield* Effect.fromResult(expandFind(patch, context))
  const now =
    earlier === undefined
      ? yield* readText(root, file, patch.parser)
      : { text: earlier.after, encoding: earlier.encoding }
  const { text: after, unmatched } = yield* patchAside({ parser: patch.parser, text: now.text, find })
  const before = earlier === undefined ? now.text : earlier.before
  const warnings = unmatched.map(
    ({ key, reason }) => `config patch of ${file}: ${shown(key)} matches nothing: ${reason}`
  )
  return { file, encoding: now.encoding, before, after, warnings }
})

/** Patches files of an instance that does not run, all or none. Returns a warning for each patch without a match. */
export const applyConfigs = Effect.fn("ConfigPatcher.applyConfigs")(function* (
  root: string,
  patches: ConfigPatches,
  context: PlaceholderContext
): Effect.fn.Return<ReadonlyArray<string>, ConfigPatchFailed> {
  const named =
    (file: string) =>
    <A>(effect: Effect.Effect<A, PathRefused | FileTooLarge | IoError | PatchProblem>) =>
      Effect.mapError(effect, (error) => {
        const code = error._tag === "IoError" ? { code: error.code } : {}
        return new ConfigPatchFailed({ file, reason: reasonOf(error), ...code })
      })

  const results = new Map<string, Patched>()
  const warnings: Array<string> = []
  for (const [file, patch] of Object.entries(patches)) {
    const parts = yield* Effect.fromResult(partsOf(file)).pipe(named(file))
    const place = parts.join("/")
    const patched = yield* patchOne(root, file, patch, context, results.get(place)).pipe(named(file))
    results.set(place, patched)
    warnings.push(...patched.warnings)
  }
  const writes: Array<{ readonly place: string; readonly file: string; readonly bytes: Buffer }> = []
  for (const [place, { file, encoding, before, after }] of results) {
    if (after === undefined || after === before) continue
    writes.push({
      place,
      file,
      bytes: yield* Effect.fromResult(encodeText(after, encoding)).pipe(named(file))
    })
  }
  for (const { place, file, bytes } of writes) {
    yield* writeFileInside(root, place, bytes).pipe(named(file))
  }
  return warnings
})

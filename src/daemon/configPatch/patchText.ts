/** One way into all parsers, with what they have in common. */
import { Result } from "effect"
import type { ConfigParser } from "../../domain/ConfigPatch.ts"
import { patchFile } from "./file.ts"
import { checkFind, hasWildcard } from "./find.ts"
import { patchIni } from "./ini.ts"
import { patchJson } from "./json.ts"
import { type Find, type Patcher, PatchProblem } from "./PatchProblem.ts"
import { patchProperties } from "./properties.ts"
import { patchXml } from "./xml.ts"
import { patchYaml } from "./yaml.ts"

const patchers: Readonly<Record<ConfigParser, Patcher>> = {
  properties: patchProperties,
  yaml: patchYaml,
  json: patchJson,
  ini: patchIni,
  xml: patchXml,
  file: patchFile
}

const BOM = "\ufeff"
const MAX_PASSES = 8

/** Parsers and printers call themselves for every level of nesting: too many levels overflow the stack. */
const guarded = (patcher: Patcher, text: string | undefined, find: Find) =>
  Result.flatMap(
    Result.try({
      try: () => patcher(text, find),
      catch: (cause) =>
        new PatchProblem({
          reason:
            cause instanceof RangeError ? "it is nested too deep" : `it cannot be read: ${String(cause)}`
        })
    }),
    (patched) => patched
  )

/**
 * Sets the values of `find` in `text` (blueprints.md, "Config parsers"); `undefined` is a missing file. Patching the
 * result once more changes nothing: `*` is repeated until it has met everything that other keys have added. A byte
 * order mark stays.
 */
export const patchText = (
  parser: ConfigParser,
  text: string | undefined,
  find: Find
): Result.Result<string | undefined, PatchProblem> => {
  const checked = checkFind(find)
  if (Result.isFailure(checked)) return Result.fail(checked.failure)
  const marked = text?.startsWith(BOM) ?? false
  let current = marked ? text?.slice(BOM.length) : text
  for (let pass = 0; pass < (hasWildcard(find) ? MAX_PASSES : 1); pass++) {
    const patched = guarded(patchers[parser], current, find)
    if (Result.isFailure(patched)) return patched
    if (patched.success === current) break
    current = patched.success
  }
  return Result.succeed(marked && current !== undefined ? BOM + current : current)
}

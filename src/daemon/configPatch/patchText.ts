/** The entry to all parsers, with the rules that they share. */
import { Result } from "effect"
import type { ConfigParser } from "../../contract/domain/ConfigPatch.ts"
import { patchFile } from "./file.ts"
import { checkFind, type Find, hasWildcard, type PatchedText, type Patcher, PatchProblem } from "./find.ts"
import { patchIni } from "./ini.ts"
import { patchJson } from "./json.ts"
import { patchProperties } from "./properties.ts"
import { patchToml } from "./toml.ts"
import { patchXml } from "./xml.ts"
import { patchYaml } from "./yaml.ts"

const patchers: Readonly<Record<ConfigParser, Patcher>> = {
  properties: patchProperties,
  yaml: patchYaml,
  json: patchJson,
  toml: patchToml,
  ini: patchIni,
  xml: patchXml,
  file: patchFile
}

const BOM = "\ufeff"
const MAX_PASSES = 8

/** Parsers and printers recurse for every level of nesting: too many levels overflow the stack. */
const guarded = (patcher: Patcher, text: string | undefined, find: Find) =>
  Result.flatMap(
    Result.try({
      try: () => patcher(text, find),
      catch: (cause) =>
        new PatchProblem({
          reason:
            cause instanceof RangeError
              ? "it is nested too deep or has too long a line"
              : `it cannot be read: ${String(cause)}`
        })
    }),
    (patched) => patched
  )

/**
 * Sets the values of `find` in `text` (spec 4.9); `undefined` is a missing file. Patching the
 * result once more changes nothing: `*` is applied again until it has reached all that other keys have added. A byte
 * order mark stays.
 */
export const patchText = (
  parser: ConfigParser,
  text: string | undefined,
  find: Find
): Result.Result<PatchedText, PatchProblem> => {
  const checked = checkFind(find, true)
  if (Result.isFailure(checked)) return Result.fail(checked.failure)
  const mark = text?.startsWith(BOM) === true ? BOM : ""
  let current: PatchedText = { text: text?.slice(mark.length), unmatched: [] }
  for (let pass = 0; pass < (hasWildcard(find) ? MAX_PASSES : 1); pass++) {
    const patched = guarded(patchers[parser], current.text, find)
    if (Result.isFailure(patched)) return patched
    const done = patched.success.text === current.text
    current = patched.success
    if (done) break
  }
  return Result.succeed(current.text === undefined ? current : { ...current, text: mark + current.text })
}

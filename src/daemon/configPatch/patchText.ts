import { Result } from "effect"
import type { ConfigParser } from "../../contract/domain/ConfigPatch.ts"
import {
  checkFind,
  type Find,
  flatText,
  hasWildcard,
  joinLines,
  leavesOf,
  type PatchedText,
  type Patcher,
  PatchProblem,
  problem,
  shown,
  splitLines
} from "./find.ts"
import { patchIni } from "./ini.ts"
import { patchJson } from "./json.ts"
import { patchProperties } from "./properties.ts"
import { patchToml } from "./toml.ts"
import { patchXml } from "./xml.ts"
import { patchYaml } from "./yaml.ts"

/** Replaces each line by the value of the longest key that begins it. A line that is one of the values stays. */
const patchFile: Patcher = (text, find) =>
  Result.gen(function* () {
    const leaves = yield* leavesOf(find)
    const wanted = leaves.map(({ path, value }) => ({ path, value: flatText(value) }))
    for (const { path, value } of wanted) {
      const [key, ...nested] = path
      if (nested.length > 0)
        return yield* problem(`the key ${shown(key)} has a map, which a line cannot hold`)
      if (/[\r\n]/.test(value)) return yield* problem(`the value of ${shown(key)} has a line break`)
    }
    const lines = splitLines(text ?? "")
    const values = new Set(wanted.map((leaf) => leaf.value))
    const byLength = wanted.toSorted((a, b) => b.path[0].length - a.path[0].length)
    const patched = lines.map((line) => {
      if (values.has(line.text)) return line
      const leaf = byLength.find(({ path }) => line.text.startsWith(path[0]))
      return leaf === undefined ? line : { text: leaf.value, end: line.end }
    })
    // an empty file is one empty line
    const present = new Set(text === "" ? [""] : patched.map((line) => line.text))
    const reason = text === undefined ? "the file does not exist" : "no line starts with it"
    const unmatched = wanted.flatMap(({ path: [key], value }) =>
      present.has(value) ? [] : [{ key, reason }]
    )
    return { text: text === undefined ? undefined : joinLines(patched), unmatched }
  })

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

/** Sets `find` in `text` (spec 4.9). A second patch changes nothing, because `*` is repeated until it settles. */
export const patchText = (
  parser: ConfigParser,
  text: string | undefined,
  find: Find
): Result.Result<PatchedText, PatchProblem> =>
  Result.gen(function* () {
    yield* checkFind(find, true)
    const mark = text?.startsWith(BOM) === true ? BOM : ""
    let current: PatchedText = { text: text?.slice(mark.length), unmatched: [] }
    for (let pass = 0; pass < (hasWildcard(find) ? MAX_PASSES : 1); pass++) {
      const before = current.text
      current = yield* guarded(patchers[parser], before, find)
      if (current.text === before) break
    }
    return current.text === undefined ? current : { ...current, text: mark + current.text }
  })

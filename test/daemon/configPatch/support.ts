import { inspect, isDeepStrictEqual } from "node:util"
import { assert } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import type { ConfigParser } from "../../../src/contract/domain/ConfigPatch.ts"
import type { Find } from "../../../src/daemon/configPatch/find.ts"
import { patchText } from "../../../src/daemon/configPatch/patchText.ts"

/** Returns the patched text; fails the test if the patch fails or a second run changes it. */
export const patched = (parser: ConfigParser, text: string | undefined, find: Find): string => {
  const once = patchText(parser, text, find)
  if (Result.isFailure(once)) return assert.fail(once.failure.reason)
  const twice = patchText(parser, once.success.text, find)
  assert.deepStrictEqual(twice, once, "a second run changes nothing")
  return once.success.text ?? assert.fail("the file is missing")
}

/** Asserts deep equality, also for keys such as `toString` and `__proto__`. */
export const same = (actual: unknown, expected: unknown): void => {
  const say = (one: unknown) => inspect(one, { depth: 9 })
  assert.isTrue(isDeepStrictEqual(actual, expected), `${say(actual)}\nshould be\n${say(expected)}`)
}

/** Returns the reason why the patch is refused. */
export const refusal = (parser: ConfigParser, text: string | undefined, find: Find): string => {
  const result = patchText(parser, text, find)
  return Result.isFailure(result) ? result.failure.reason : assert.fail(`not refused: ${result.success.text}`)
}

/** Returns the keys without a match, with the reasons. */
export const unmatched = (parser: ConfigParser, text: string | undefined, find: Find) => {
  const result = patchText(parser, text, find)
  return Result.isFailure(result) ? assert.fail(result.failure.reason) : result.success.unmatched
}

/** Returns the number of lines of `before` that are not in `after`, in the same order. */
export const linesLost = (before: string, after: string): number => {
  const a = before.split("\n")
  const b = after.split("\n")
  let row = new Array<number>(b.length + 1).fill(0)
  for (const line of a) {
    const next = [0]
    b.forEach((other, n) => {
      next.push(line === other ? (row[n] ?? 0) + 1 : Math.max(row[n + 1] ?? 0, next[n] ?? 0))
    })
    row = next
  }
  return a.length - (row.at(-1) ?? 0)
}

/** Keys without dots and stars, some of them special in JavaScript or YAML. */
export const plainKey: fc.Arbitrary<string> = fc.oneof(
  { weight: 5, arbitrary: fc.stringMatching(/^[a-zA-Z][a-zA-Z0-9_-]{0,8}$/) },
  {
    weight: 1,
    arbitrary: fc.constantFrom("__proto__", "constructor", "toString", "yes", "null", "y", "a b", "10")
  }
)

/** Texts, some of them special in the formats. */
export const value: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.string({ maxLength: 20 }) },
  { weight: 2, arbitrary: fc.string({ unit: "binary", maxLength: 8 }).filter((text) => text.isWellFormed()) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      "yes",
      "1:30",
      "- a",
      "a: b",
      "#x",
      " x ",
      "x # y",
      "~",
      "",
      "\\",
      "\\u12",
      "'",
      '"',
      "=",
      "*a"
    )
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom("a\nb", "\r\n", "\u2028", "\u0085", "{{x}}", "---", "[x]", "<a>&amp;</a>")
  }
)

export const scalar: fc.Arbitrary<string | number | boolean | null> = fc.oneof(
  value,
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => (Object.is(number, -0) ? 0 : number)),
  fc.boolean(),
  fc.constant(null)
)

/**
 * Versions of game software and the ranges of `mappings` (spec 4.6).
 *
 * Effect's SemVer is not used: it wants three numbers (Minecraft has `1.20` and `26.1`), orders `pre10` before `pre9`,
 * and its ranges leave pre-releases out, so that `>=1.20.5` would not hold for `1.21.11-pre1`.
 */
import { Result } from "effect"
import type { Software } from "../../../contract/domain/Software.ts"
import { printable } from "./located.ts"

type Part = number | string

type Version =
  | {
      readonly kind: "release" | "snapshot"
      readonly numbers: ReadonlyArray<number>
      readonly suffix: ReadonlyArray<Part>
    }
  | { readonly kind: "name"; readonly name: string }

const releasePattern = /^v?(\d{1,15}(?:\.\d{1,15})*)(?!\d)([^+]*)/
const snapshotPattern = /^(\d{2})w(\d{2})([a-z])$/

const partsOf = (text: string): ReadonlyArray<Part> =>
  (text.toLowerCase().match(/[a-z]+|\d{1,15}/g) ?? []).map((part) => (/^\d/.test(part) ? Number(part) : part))

/** Reads `1.21.11`, `1.20-pre1`, `1.20.1-47.2.0`, `24w14a`; anything else is a name such as `latest`. */
const parseVersion = (text: string): Version => {
  const snapshot = snapshotPattern.exec(text)
  if (snapshot !== null) {
    const [, year, week, letter = ""] = snapshot
    return { kind: "snapshot", numbers: [Number(year), Number(week)], suffix: [letter] }
  }
  const release = releasePattern.exec(text)
  if (release === null) return { kind: "name", name: text }
  const [, numbers = "", suffix = ""] = release
  return { kind: "release", numbers: numbers.split(".").map(Number), suffix: partsOf(suffix) }
}

/** The order of suffixes before a release. */
const stages = ["dev", "snapshot", "alpha", "beta", "other", "pre", "rc"]
const stage = (part: string): number => {
  const index = stages.indexOf(part)
  return index < 0 ? stages.indexOf("other") : index
}

const order = <A extends number | string>(a: A, b: A): number => (a < b ? -1 : a > b ? 1 : 0)

const comparePart = (a: Part, b: Part): number => {
  if (typeof a === "number") return typeof b === "number" ? order(a, b) : -1
  return typeof b === "number" ? 1 : order(stage(a), stage(b)) || order(a, b)
}

const compareParts = (a: ReadonlyArray<Part>, b: ReadonlyArray<Part>): number => {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const result = comparePart(a[i] ?? 0, b[i] ?? 0)
    if (result !== 0) return result
  }
  return order(a.length, b.length)
}

const compareNumbers = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): number => {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const result = order(a[i] ?? 0, b[i] ?? 0)
    if (result !== 0) return result
  }
  return 0
}

/** `1.20-pre1` comes before `1.20`, a build of it such as Forge's `1.20-46.0.14` after. */
const side = (suffix: ReadonlyArray<Part>): number =>
  suffix[0] === undefined ? 0 : typeof suffix[0] === "string" ? -1 : 1

/**
 * Compares two versions: below, equal to or above 0. Missing numbers are 0, and the part after a `+` does not count.
 * Unset if they have no order, such as a snapshot (`24w14a`) or name (`latest`) and a release.
 */
const compareVersions = (a: Version, b: Version): number | undefined => {
  if (a.kind === "name" || b.kind === "name" || a.kind !== b.kind) {
    return a.kind === "name" && b.kind === "name" && a.name === b.name ? 0 : undefined
  }
  return (
    compareNumbers(a.numbers, b.numbers) ||
    order(side(a.suffix), side(b.suffix)) ||
    compareParts(a.suffix, b.suffix)
  )
}

interface Comparator {
  readonly operator: string
  readonly version: Version
}

const holds: Readonly<Record<string, (order: number) => boolean>> = {
  ">": (order) => order > 0,
  ">=": (order) => order >= 0,
  "<": (order) => order < 0,
  "<=": (order) => order <= 0,
  "==": (order) => order === 0,
  "=": (order) => order === 0
}

export type VersionRange = ReadonlyArray<Comparator>

const comparatorPattern = /\s*(?:(>=|<=|==|=|>|<)\s*)?([A-Za-z0-9][A-Za-z0-9._+-]*)(?=\s|$)/y

const MAX_RANGE_LENGTH = 1024

/** Reads `>=1.20.5 <=1.21.11`; fails with the reason. */
export const parseRange = (text: string): Result.Result<VersionRange, string> => {
  if (text.length > MAX_RANGE_LENGTH) return Result.fail("the version range is too long")
  const comparators: Array<Comparator> = []
  const end = text.trimEnd().length
  const pattern = new RegExp(comparatorPattern)
  while (pattern.lastIndex < end) {
    const from = pattern.lastIndex
    const match = pattern.exec(text)
    if (match === null) return unreadable(text.slice(from))
    const [, operator = "=", word = ""] = match
    const version = parseVersion(word)
    if (/(?:^|\.)x(?:\.|$)/i.test(word)) return unreadable(word)
    if (version.kind === "name" && !operator.startsWith("=")) {
      return Result.fail(
        `\`${operator}${printable(word, 60)}\`: this version has no order; only = can name it`
      )
    }
    comparators.push({ operator, version })
  }
  return comparators.length === 0 ? Result.fail("the version range is empty") : Result.succeed(comparators)
}

const unreadable = (rest: string) =>
  Result.fail(
    `cannot read the version range at \`${printable(rest.trim(), 60)}\`; ` +
      "write versions with > >= < <= == or =, separated by spaces"
  )

export const satisfies = (version: string, range: VersionRange): boolean => {
  const parsed = parseVersion(version)
  return range.every((comparator) => {
    const order = compareVersions(parsed, comparator.version)
    return order !== undefined && holds[comparator.operator]?.(order) === true
  })
}

/** The `range` of the mapping that applies if no other does. */
export const DEFAULT_RANGE = "default"

/** Returns the image key of a version, if a range or `default` matches. */
export const mapVersion = (mappings: Software["mappings"], version: string): string | undefined => {
  const match = mappings.find(({ range }) => {
    if (range === DEFAULT_RANGE) return false
    const parsed = parseRange(range)
    return Result.isSuccess(parsed) && satisfies(version, parsed.success)
  })
  return (match ?? mappings.find(({ range }) => range === DEFAULT_RANGE))?.image
}

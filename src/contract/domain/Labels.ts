/** Labels and names of servers (spec 3.3, 3.6). */
import { Record, Schema } from "effect"
import { inUnit } from "./units.ts"

export const MAX_LABELS = 32

export const LabelKey = Schema.String.check(
  Schema.isPattern(/^[a-z0-9][a-z0-9._/-]{0,62}$/u, {
    expected: "a label key ([a-z0-9]([a-z0-9._/-]{0,62}))"
  })
)

/** No control or format characters except the joiners of scripts and emoji, no separators, no half surrogate pairs. */
const PRINTABLE = "(?:[\\u200c\\u200d]|[^\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}])"

export const LabelValue = Schema.String.check(
  Schema.isPattern(new RegExp(`^${PRINTABLE}*$`, "u"), {
    expected: "a label value without control characters"
  }),
  Schema.isMaxLength(128)
)

export const Labels = Schema.Record(LabelKey, LabelValue).check(
  Schema.isMaxProperties(MAX_LABELS, { expected: `at most ${MAX_LABELS} labels` })
)
export type Labels = typeof Labels.Type

export const SomeLabels = Labels.check(Schema.isMinProperties(1, { expected: "at least one label" }))

export const PrintableText = (most: number) =>
  Schema.String.check(
    Schema.isPattern(new RegExp(`^${PRINTABLE}{1,${most}}$`, "u"), {
      expected: `1 to ${most} characters on one line`
    })
  )

/** The name of a server, which need not be unique. */
export const ServerName = PrintableText(64)

export const ExpiresIn = Schema.Finite.check(
  Schema.isBetween({ minimum: 10, maximum: 31_536_000 }, inUnit("a number of seconds"))
)

/** Returns the time at which a server expires, RFC 3339; `now`: milliseconds since the epoch. */
export const expiryOf = (now: number, expires_in: number): string =>
  new Date(now + expires_in * 1000).toISOString()

export interface ServerPatch {
  readonly name?: string | null
  /** Merged; null removes a label. */
  readonly labels?: Readonly<Record<string, string | null>>
  /** RFC 3339; null: never. */
  readonly expires_at?: string | null
}

export const mergeLabels = (labels: Labels, change: NonNullable<ServerPatch["labels"]>): Labels =>
  Record.filter({ ...labels, ...change }, (value) => value !== null)

export const MAX_CONDITIONS = 64

export type LabelCondition =
  | { readonly key: string; readonly is: "present" | "absent" }
  | { readonly key: string; readonly is: "equal" | "different"; readonly value: string }

/** Reads a condition: `k=v`, `k!=v`, `k` or `!k`; undefined: it is none of these. */
export const labelCondition = (text: string): LabelCondition | undefined => {
  const [, not, key, operator, value] = /^(!?)([^=!]+)(?:(!?=)(.*))?$/su.exec(text) ?? []
  if (key === undefined || !Schema.is(LabelKey)(key)) return undefined
  if (operator === undefined || value === undefined) return { key, is: not === "!" ? "absent" : "present" }
  return not === "!" ? undefined : { key, is: operator === "=" ? "equal" : "different", value }
}

/** Whether labels meet a condition; `k!=v` also holds without the label. */
export const meets = (labels: Labels, condition: LabelCondition): boolean => {
  const value = Object.hasOwn(labels, condition.key) ? labels[condition.key] : undefined
  switch (condition.is) {
    case "present":
      return value !== undefined
    case "absent":
      return value === undefined
    case "equal":
      return value === condition.value
    case "different":
      return value !== condition.value
  }
}

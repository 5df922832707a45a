/** The fields of messages from nodes: bounded text without control characters, bounded counts, times in one form. */
import { Option, Schema, SchemaGetter } from "effect"
import { TimeText } from "./nowText.ts"

/** The longest text of a node, in UTF-16 code units. Console lines have a bound of their own. */
export const NODE_TEXT_LENGTH = 1024

/** Control and format characters, line and paragraph separators, halves of a surrogate pair. */
const hostile = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u
const everyHostile = new RegExp(hostile.source, "gu")
const breaks = /[\t\n\v\f\r\u0085\u2028\u2029]+/g

/** Whether a text has characters that act on a terminal, on a log or on the order of the text. */
export const hasHostileCharacters = (text: string): boolean => hostile.test(text)

export const replaceHostile = (text: string, by: string): string => text.replace(everyHostile, by)

/** Cuts a text to {@link NODE_TEXT_LENGTH} and replaces line breaks and hostile characters. Idempotent. */
export const cleanText = (text: string): string => {
  const cut = text.length > NODE_TEXT_LENGTH ? `${text.slice(0, NODE_TEXT_LENGTH - 1)}…` : text
  return hostile.test(cut) ? replaceHostile(cut.replace(breaks, " "), "\ufffd") : cut
}

/** Writes control and format characters as the escapes of JSON, so that a text stays on its line. */
export const escapeText = (text: string): string =>
  hostile.test(text)
    ? text.replace(everyHostile, (found) =>
        Array.from({ length: found.length }, (_, at) => {
          const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[found]
          return short ?? `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`
        }).join("")
      )
    : text

/** Free text of a node, such as a reason. Decoding cleans; encoding leaves the text as it is. */
export const NodeText = Schema.String.pipe(
  Schema.decodeTo(Schema.String, {
    decode: SchemaGetter.transform(cleanText),
    encode: SchemaGetter.passthrough()
  })
)

const nodeKeyPattern = /^[\x21-\x7e]{1,128}$/

export const isNodeKey = (text: string): boolean => nodeKeyPattern.test(text)

/** An id in a node's message. The control plane looks it up and logs it, but never shows it as text. */
export const NodeKey = Schema.String.check(
  Schema.isPattern(nodeKeyPattern, { expected: "1-128 visible ASCII characters" })
)

/** The id of a server in a node's message. */
export const ServerKey = NodeKey.pipe(Schema.brand("ServerId"))

export const NodeCount = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

export const NodeShare = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** The exit code of a process, on any system. */
export const ExitCode = Schema.Int.check(Schema.isBetween({ minimum: -(2 ** 31), maximum: 2 ** 32 - 1 }))

const timePattern = /^(?:20\d\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/

/** Reads RFC 3339 in UTC of this century, in milliseconds since the epoch; undefined: the text is something else. */
const readTime = (text: string): number | undefined => {
  const millis = timePattern.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(millis) ? undefined : millis
}

/** Days that exist in each year. */
const day = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
const contractTime = new RegExp(`^20\\d\\d-${day}T(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d\\.\\d{3}Z$`)

/** Whether a text certainly is a time in the contract's form; the 29th of February is left to {@link timeText}. */
export const isContractTime = (text: string): boolean => contractTime.test(text)

const isoOf = (millis: number) => new Date(millis).toISOString()

/** Returns a time of a node in the contract's form; undefined: the text is not a time. */
export const timeText = (text: string): string | undefined => {
  if (isContractTime(text)) return text
  const millis = readTime(text)
  return millis === undefined ? undefined : isoOf(millis)
}

/** An optional time of a node in the contract's form. Decoding drops a text that is not a time. */
export const NodeTime = Schema.optionalKey(TimeText).pipe(
  Schema.decodeTo(Schema.optionalKey(Schema.String), {
    decode: SchemaGetter.transformOptional((given: Option.Option<string>) =>
      Option.flatMap(given, (text) => Option.fromUndefinedOr(timeText(text)))
    ),
    encode: SchemaGetter.passthrough()
  })
)

/** A required time of a node in the contract's form. Decoding reads a text that is not a time as 1970. */
export const NodeCertainTime = TimeText.pipe(
  Schema.decodeTo(Schema.String, {
    decode: SchemaGetter.transform((text) => timeText(text) ?? isoOf(0)),
    encode: SchemaGetter.passthrough()
  })
)

/** How far the clocks of a node and of the control plane may differ, in ms. */
const CLOCK_DIFFERENCE = 60_000
/** How long a report may wait for the control plane, in ms. */
const OLDEST = 30 * 24 * 3600 * 1000

/**
 * Returns an event's time in the contract's form. The time of receipt (ms since the epoch) replaces a text that is no
 * time, a later time, and a time 30 days before.
 */
export const timeOfEvent = (text: string, receipt: number): string => {
  const said = readTime(text)
  const isPlausible = said !== undefined && said <= receipt + CLOCK_DIFFERENCE && said >= receipt - OLDEST
  return isoOf(isPlausible ? said : receipt)
}

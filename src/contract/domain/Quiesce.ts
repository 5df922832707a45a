/** How a running server holds still while a backup reads its files (spec 12.10). */
import { Schema } from "effect"
import { ConsoleLine } from "./ConsoleLine.ts"
import { inUnit } from "./units.ts"

/** A line for the console of a server. */
export const QuiesceLine = ConsoleLine.check(Schema.isNonEmpty())
/** Lines before the copy, and lines after it. */
export const MOST_QUIESCE_LINES = 20

export const QuiesceTimeout = Schema.Finite.check(
  Schema.isBetween({ minimum: 1, maximum: 600 }, inUnit("a number of seconds"))
)
/** The {@link QuiesceTimeout} of software that gives none, in seconds. */
export const DEFAULT_QUIESCE_TIMEOUT = 60

/** `continue`: the backup is made, and its consistency is `crash`. `fail`: the backup fails. */
export const QuiesceFailure = Schema.Literals(["continue", "fail"])

const lines = Schema.Array(QuiesceLine).check(Schema.isMaxLength(MOST_QUIESCE_LINES))

/** The field `quiesce` of software. */
export const QuiesceRule = Schema.Struct({
  before: lines.check(Schema.isMinLength(1)),
  /** Part of the console line that says that the files are whole, or `regex:...`. */
  until: Schema.String,
  /** Seconds to reach this line. */
  timeout: QuiesceTimeout,
  after: lines,
  on_failure: QuiesceFailure
}).annotate({ identifier: "QuiesceRule" })
export type QuiesceRule = typeof QuiesceRule.Type

/** `auto`: as the software says, if the server runs. */
export const QuiesceMode = Schema.Literals(["auto", "stop", "pause", "none"])

/** The way in which the node holds a server still while it reads the files. */
export const Quiesce = Schema.Union([
  Schema.Struct({ by: Schema.Literal("commands"), ...QuiesceRule.fields }),
  Schema.Struct({ by: Schema.Literal("stop") }),
  Schema.Struct({ by: Schema.Literal("pause") })
])
export type Quiesce = typeof Quiesce.Type

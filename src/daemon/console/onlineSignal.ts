import vm from "node:vm"
import { Deferred, Effect, Latch } from "effect"
import { signalPattern, stripAnsi } from "../../contract/domain/ConsoleLine.ts"
import { errorCode } from "../disk/fsio.ts"
import { type Line, lineOf, lineReader } from "./lines.ts"

/** The silence after which a line without an end counts as a line, in ms (spec 3.10). */
export const SILENCE = 250

/** Characters of a line in which an expensive pattern is searched. */
const MATCHED_LENGTH = 2048

/** The longest search in one batch of lines, in ms, so that an expensive pattern does not block the daemon. */
const PATTERN_BUDGET = 100

/** Returns whether a line matches, or is `too-slow`. Lines come in order: a match may span parts. */
export type OnlineMatcher = (lines: ReadonlyArray<Line>) => boolean | "too-slow"

/** A character that no line has, in place of the rest of a long line. */
const REST = "\uffff"

/** Returns the texts to search: each part of a line with the part before, without ANSI sequences. */
const textsToSearch = () => {
  let before = { text: "", continues: false }
  return (lines: ReadonlyArray<Line>): ReadonlyArray<string> =>
    lines.map(({ continues, isCut, isOpen, text }) => {
      const plain = stripAnsi(continues ? before.text + text : text)
      const searched = (continues && before.continues ? REST : "") + plain + (isCut ? REST : "")
      if (isOpen !== true) before = { text, continues }
      return searched
    })
}

const sandbox: { lines: ReadonlyArray<string>; pattern: RegExp } = { lines: [], pattern: /$/ }
const context = vm.createContext(sandbox)
const search = new vm.Script("lines.some((line) => pattern.test(line))")

/** Removes `.*` from the beginning of a pattern: the result is the same, and takes linear instead of quadratic time. */
const withoutLead = ({ flags, source }: RegExp) => new RegExp(source.replace(/^(?:\^?\.\*\??)+/, ""), flags)

const matchWithin = (pattern: RegExp): OnlineMatcher => {
  const texts = textsToSearch()
  let length = Number.POSITIVE_INFINITY
  const isFound = (lines: ReadonlyArray<string>): boolean | "too-slow" => {
    sandbox.lines = length === MATCHED_LENGTH ? lines.map((line) => line.slice(0, length)) : lines
    sandbox.pattern = pattern
    try {
      return search.runInContext(context, { timeout: PATTERN_BUDGET }) === true
    } catch (cause) {
      if (errorCode(cause) !== "ERR_SCRIPT_EXECUTION_TIMEOUT") return false
      if (length === MATCHED_LENGTH) return "too-slow"
      length = MATCHED_LENGTH
      return isFound(lines)
    }
  }
  return (lines) => isFound(texts(lines))
}

/** Returns the matcher of an online signal, a part of a line or `regex:...`, or why the pattern is refused. */
export const onlineMatcher = (
  signal: string
): { readonly matcher: OnlineMatcher } | { readonly invalid: string } => {
  if (!signal.startsWith("regex:")) {
    const texts = textsToSearch()
    return { matcher: (lines) => texts(lines).some((text) => text.includes(signal)) }
  }
  try {
    return { matcher: matchWithin(withoutLead(signalPattern(signal.slice("regex:".length)))) }
  } catch (cause) {
    return { invalid: cause instanceof Error ? cause.message : "not a pattern" }
  }
}

/** Searches the output of a process. `found` completes at the online signal; `read` takes the next output. */
export const searchOutput = (matcher: OnlineMatcher) => {
  const online = Deferred.makeUnsafe<void>()
  const changed = Latch.makeUnsafe(false)
  const reader = lineReader()
  const search = (lines: ReadonlyArray<Line>) => {
    if (matcher(lines) === true) Deferred.doneUnsafe(online, Effect.void)
  }
  const read = (bytes: Uint8Array): void => {
    if (Deferred.isDoneUnsafe(online)) return
    const lines: Array<Line> = []
    reader.read(Buffer.from(bytes), (part) => lines.push(lineOf(part)))
    search(lines)
    changed.openUnsafe()
  }
  const searchOpenLine = Effect.gen(function* () {
    yield* changed.await
    yield* changed.close
    const more = yield* Effect.timeoutOption(changed.await, SILENCE)
    const line = lineOf(reader.open())
    if (more._tag === "None" && line.text !== "") search([{ ...line, isOpen: true }])
  })
  return { read, found: Effect.raceFirst(Deferred.await(online), Effect.forever(searchOpenLine)) }
}

import vm from "node:vm"
import { signalPattern } from "../../domain/signalPattern.ts"
import { stripAnsi } from "../../domain/stripAnsi.ts"
import { errorCode } from "../disk/fsio.ts"

/** Characters of a line in which a pattern is searched. */
const MATCHED_LENGTH = 2048

/** The longest search in one batch of lines, in ms, so that an expensive pattern does not block the daemon. */
const PATTERN_BUDGET = 100

/** Returns whether a line matches the online signal; `too-slow`: the pattern exceeded its budget. */
export type OnlineMatcher = (lines: ReadonlyArray<string>) => boolean | "too-slow"

const sandbox: { lines: ReadonlyArray<string>; pattern: RegExp } = { lines: [], pattern: /$/ }
const context = vm.createContext(sandbox)
const search = new vm.Script("lines.some((line) => pattern.test(line))")

const matchWithin =
  (pattern: RegExp): OnlineMatcher =>
  (lines) => {
    sandbox.lines = lines.map((line) => stripAnsi(line.slice(0, MATCHED_LENGTH)))
    sandbox.pattern = pattern
    try {
      return search.runInContext(context, { timeout: PATTERN_BUDGET }) === true
    } catch (cause) {
      if (errorCode(cause) === "ERR_SCRIPT_EXECUTION_TIMEOUT") return "too-slow"
      return false
    }
  }

/**
 * Returns the matcher of an online signal, which is a part of a line or `regex:...`; `invalid`: why the pattern is
 * refused.
 */
export const onlineMatcher = (
  signal: string
): { readonly matcher: OnlineMatcher } | { readonly invalid: string } => {
  if (!signal.startsWith("regex:")) {
    return { matcher: (lines) => lines.some((line) => stripAnsi(line).includes(signal)) }
  }
  try {
    return { matcher: matchWithin(signalPattern(signal.slice("regex:".length))) }
  } catch (cause) {
    return { invalid: cause instanceof Error ? cause.message : "not a pattern" }
  }
}

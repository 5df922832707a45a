/** The variables that an install script reads (blueprints.md, "Software"). Pure. */
import type { InstallScript } from "./Software.ts"

/** Commands and expressions that read all variables. */
const readsAll: ReadonlyArray<RegExp> = [
  /(?:^|[;|&(`{]|\b(?:then|do|else|if|while|exec|command)\b)[ \t]*(?:(?:env|printenv)(?: +-\w+)*|set|export +-p|declare +-[px]+|typeset +-[px]+)[ \t]*(?:$|[;|&)<>`#])/m,
  /\benvsubst\b/,
  /\/environ\b/,
  /\benviron\b(?!\s*(?:\[|\.get\b))/,
  /\bprocess\.env\b(?!\s*[.[])/
]

const word = /[A-Za-z_]\w*/g
const wordsOf = (text: string): ReadonlyArray<string> => text.match(word) ?? []

/**
 * Returns the names of variables that an installation reads: those that occur in its scripts as a word, in any syntax, and
 * then those that occur in the values of these, because a script may evaluate a value.
 */
export const namesRead = (
  { post_warmup_script, script, warmup }: InstallScript,
  values: Readonly<Record<string, string>>
): ReadonlyArray<string> => {
  const scripts = warmup ? [script, post_warmup_script] : [script]
  if (scripts.some((script) => readsAll.some((pattern) => pattern.test(script)))) return Object.keys(values)
  const read = new Set<string>()
  const pending = scripts.flatMap(wordsOf)
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const value = Object.hasOwn(values, name) && !read.has(name) ? values[name] : undefined
    if (value === undefined) continue
    read.add(name)
    pending.push(...wordsOf(value))
  }
  return [...read]
}

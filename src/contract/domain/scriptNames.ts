/** The variables that an install script reads (spec 4.6). Pure. */
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

interface ScriptWords {
  readonly readsAll: boolean
  readonly words: ReadonlyArray<string>
}

const searched = new WeakMap<InstallScript, ScriptWords>()

const wordsIn = (install: InstallScript): ScriptWords => {
  const known = searched.get(install)
  if (known !== undefined) return known
  const { post_warmup_script, script, warmup } = install
  const scripts = warmup ? [script, post_warmup_script] : [script]
  const found = {
    readsAll: scripts.some((script) => readsAll.some((pattern) => pattern.test(script))),
    words: [...new Set(scripts.flatMap(wordsOf))]
  }
  searched.set(install, found)
  return found
}

/** Returns the words of an installation's scripts, among which are the names of the variables that they read. */
export const scriptWords = (install: InstallScript): ReadonlyArray<string> => wordsIn(install).words

/** Returns the variables that scripts read, then words in their values, which a script may evaluate. */
export const namesRead = (
  install: InstallScript,
  values: Readonly<Record<string, string>>
): ReadonlyArray<string> => {
  const { readsAll, words } = wordsIn(install)
  if (readsAll) return Object.keys(values)
  const read = new Set<string>()
  const pending = [...words]
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const value = Object.hasOwn(values, name) && !read.has(name) ? values[name] : undefined
    if (value === undefined) continue
    read.add(name)
    pending.push(...wordsOf(value))
  }
  return [...read]
}

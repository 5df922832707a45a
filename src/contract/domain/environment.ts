/** The environment variables that a server may have, and those that a caller of the API may set. Pure. */
import { Schema } from "effect"
import type { InstallScript } from "./Software.ts"

/** Variables that a server may have, with those of its blueprint. */
export const MOST_VARIABLES = 256
const MOST_VALUE_BYTES = 32 * 1024
const MOST_BYTES = 128 * 1024

const encoder = new TextEncoder()

/** The size of a text in UTF-8; browsers have no `Buffer`. */
const bytesOf = (text: string): number => encoder.encode(text).length

/** Variables of the daemon: neither a blueprint nor a caller sets one. */
const OWN = "MUSTER_*"

/** Variables that change how programs are found, loaded or run; a `*` matches any text. */
const guarded: ReadonlyArray<string> = [
  ...["LD_*", "GLIBC_*", "GCONV_PATH", "LOCPATH", "PATH", "HOME", "SHELL", "TMPDIR"],
  ...[
    "BASH_*",
    "BASHOPTS",
    "SHELLOPTS",
    "ENV",
    "IFS",
    "CDPATH",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "ZDOTDIR"
  ],
  ...["NODE_*", "npm_*", "NPM_*", "BUN_*", "DENO_*", "PYTHON*", "PERL*", "RUBY*", "GEM_*", "BUNDLE_*"],
  ...["LUA*", "PHP*", "*CLASSPATH*", "*JAVA*OPT*", "JAVA_HOME", "JRE_HOME"],
  ...["DOTNET_*", "COMPlus_*", "CORECLR_*", "COR_*", "MONO_*", "ERL_*", "WINEDLL*"],
  ...["*_PROXY", "*_proxy", "SSL_*", "OPENSSL_*", "SSLKEYLOGFILE", "CURL_*", "WGETRC", "GIT_*"]
]

/** Whether a pattern, of which each `*` stands for any text, is the name of a variable. */
const matches = (pattern: string, name: string): boolean => {
  const [first = "", ...rest] = pattern.split("*")
  const last = rest.pop()
  if (last === undefined) return name === pattern
  let from = first.length
  for (const part of rest) {
    const at = name.indexOf(part, from)
    if (at < 0) return false
    from = at + part.length
  }
  return name.startsWith(first) && name.endsWith(last) && name.length >= from + last.length
}

export interface DeclaredVariables {
  readonly names: ReadonlySet<string>
  readonly allowed: ReadonlyArray<string>
}

/**
 * Whether a caller without full rights may set a variable. The upper-case form counts too, because a server gets both.
 */
export const isDeclared = ({ allowed, names }: DeclaredVariables, name: string): boolean =>
  names.has(name) || names.has(name.toUpperCase()) || allowed.some((one) => matches(one, name))

/** Whether a variable is one of the daemon, or a pattern matches such variables only. */
export const isOfDaemon = (name: string): boolean => matches(OWN, name)

export const ofDaemon = `the variables ${OWN} are the daemon's`

/** Name of a variable of a server. */
export const VariableName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/u, {
    expected: "the name of an environment variable: at most 128 characters from A-Za-z0-9_, no digit first"
  })
)

/** Value of a variable of a server: at most 32 KiB, no NUL. */
export const VariableValue = Schema.String.check(
  Schema.makeFilter((value: string) => !value.includes("\0"), { expected: "a value without NUL" }),
  Schema.makeFilter((value: string) => bytesOf(value) <= MOST_VALUE_BYTES, {
    expected: `a value of at most ${MOST_VALUE_BYTES} bytes`
  })
)

/** An entry of `env-allow`: the name of a variable, or a prefix and `*`. */
export const VariablePattern = Schema.String.check(
  Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,127}\*?$/u, {
    expected: "the name of an environment variable, or the beginning of names and *"
  })
)

/** Returns why the variables of a server exceed the bound; undefined: they do not. */
export const tooMuch = (env: Readonly<Record<string, string>>): string | undefined => {
  const entries = Object.entries(env)
  if (entries.length > MOST_VARIABLES) {
    return `expected at most ${MOST_VARIABLES} variables, found ${entries.length}`
  }
  const bytes = entries.reduce((sum, [name, value]) => sum + name.length + bytesOf(value), 0)
  return bytes > MOST_BYTES ? `expected at most ${MOST_BYTES} bytes in all, found ${bytes}` : undefined
}

/** Adds upper-case forms, as SLS does; given names win, and guarded names count only as callers write them. */
export const upperCased = (env: Readonly<Record<string, string>>): Readonly<Record<string, string>> => {
  const upper = Object.entries(env).flatMap(([name, value]) => {
    const other = name.toUpperCase()
    return other === name || whyNotSet(other, []) !== undefined ? [] : [[other, value] as const]
  })
  return upper.length === 0 ? env : { ...Object.fromEntries(upper), ...env }
}

/**
 * Returns why a caller may not set a variable, if so. Names compare exactly, as Linux does; `allowed` is `env-allow`.
 */
export const whyNotSet = (name: string, allowed: ReadonlyArray<string>): string | undefined => {
  if (isOfDaemon(name)) return ofDaemon
  const pattern = guarded.find((one) => matches(one, name))
  if (pattern === undefined || allowed.some((one) => matches(one, name))) return undefined
  return `${pattern === name ? "this variable changes" : `the variables ${pattern} change`} how programs run`
}

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

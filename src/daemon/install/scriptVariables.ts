/**
 * The variables of a server that its install script gets, and with them the identity of its base (blueprints.md,
 * "Software"). Servers share a base, so a script gets the variables that it reads and no others. Pure.
 */
import { createHash } from "node:crypto"
import { Result } from "effect"
import { isOfDaemon, upperCased } from "../../domain/environment.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import type { InstallScript } from "../../domain/Software.ts"
import { contextOf } from "../configPatch/placeholders.ts"

/** The build of the software, unless `env` names another. */
const DEFAULT_BUILD = "latest"

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
 * Returns the names that scripts read: those that occur in them as a word, in any syntax, and then those that occur in
 * the values of these, because a script may evaluate a value.
 */
const readNames = (
  scripts: ReadonlyArray<string>,
  values: Readonly<Record<string, string>>
): ReadonlyArray<string> => {
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

/** Variables of a script that no variable of a blueprint replaces. */
const own = ["HOME", "INSTALL_DIR", "SOFTWARE_ID", "VERSION", "SERVER_ID", "SERVER_IP", "SERVER_PORT"]

const scriptsOf = ({ post_warmup_script, script, warmup }: InstallScript) =>
  warmup ? [script, post_warmup_script] : [script]

/** Returns the variables that the scripts of a server's software read, sorted by name. */
const variablesRead = ({ spec, install }: { readonly spec: ServerSpec; readonly install: InstallScript }) => {
  const { env, limits } = spec.definition
  const context = contextOf(spec)
  // A placeholder without a value is an error of the start, not of the installation.
  const expanded = Result.isSuccess(context) ? context.success.env : upperCased(env)
  const names = Object.keys(upperCased(env)).filter((name) => !own.includes(name) && !isOfDaemon(name))
  const values: Readonly<Record<string, string>> = Object.fromEntries([
    ...names.map((name) => [name, expanded[name] ?? ""] as const),
    ["SERVER_MEMORY", String(Math.floor(limits.memory_limit ?? 0))]
  ])
  const read = readNames(scriptsOf(install), values)
  return read.toSorted().map((name) => [name, values[name] ?? ""] as const)
}

/** Returns the variables of a server that its install and post-warm-up scripts get. */
export const scriptVariables = (
  spec: ServerSpec,
  install: InstallScript
): Readonly<Record<string, string>> => ({
  BUILD_NUMBER: DEFAULT_BUILD,
  ...Object.fromEntries(variablesRead({ spec, install }))
})

/**
 * Returns the name of a server's base below its software: the version, and if the scripts read variables of the server,
 * `@` and a hash of these. A variable that is not set does not count.
 */
export const baseName = (spec: ServerSpec): string => {
  const { install_script: install, version } = spec.definition
  const read = install === null || install.skip_scripts ? [] : variablesRead({ spec, install })
  if (read.length === 0) return version
  return `${version}@${createHash("sha256").update(JSON.stringify(read)).digest("hex").slice(0, 16)}`
}

/** Whether a name is that of a base whose scripts read variables; returns its version. */
export const variantOf = (name: string): string | undefined =>
  name.includes("@") ? name.slice(0, name.indexOf("@")) : undefined

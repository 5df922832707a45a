/** The server variables that an install script reads, and with them the identity of its base (spec 4.6). Pure. */
import { createHash } from "node:crypto"
import { Result } from "effect"
import { scriptHash } from "../../contract/domain/compareDefinitions.ts"
import { isOfDaemon, namesRead, upperCased } from "../../contract/domain/environment.ts"
import { memoryLimitMib } from "../../contract/domain/Limits.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { InstallScript } from "../../contract/domain/Software.ts"
import { contextOf } from "../configPatch/placeholders.ts"

const DEFAULT_BUILD = "latest"

/** Variables of a script that no variable of a blueprint replaces. */
const own = ["HOME", "INSTALL_DIR", "SOFTWARE_ID", "VERSION", "SERVER_ID", "SERVER_IP", "SERVER_PORT"]

const variablesRead = ({ spec, install }: { readonly spec: ServerSpec; readonly install: InstallScript }) => {
  const { env, limits } = spec.definition
  const context = contextOf(spec)
  // A placeholder without a value is an error of the start, not of the installation.
  const expanded = Result.isSuccess(context) ? context.success.env : upperCased(env)
  const names = Object.keys(upperCased(env)).filter((name) => !own.includes(name) && !isOfDaemon(name))
  const values: Readonly<Record<string, string>> = Object.fromEntries([
    ...names.map((name) => [name, expanded[name] ?? ""] as const),
    ["SERVER_MEMORY", String(memoryLimitMib(limits))]
  ])
  return namesRead(install, values)
    .toSorted()
    .map((name) => [name, values[name] ?? ""] as const)
}

export const scriptVariables = (
  spec: ServerSpec,
  install: InstallScript
): Readonly<Record<string, string>> => ({
  BUILD_NUMBER: DEFAULT_BUILD,
  ...Object.fromEntries(variablesRead({ spec, install }))
})

const nameOf = (spec: ServerSpec): string => {
  const { install_script: install, version } = spec.definition
  if (install === null || install.skip_scripts) return version
  const read = variablesRead({ spec, install })
  const made = [scriptHash(spec.definition), read]
  const hash = createHash("sha256").update(JSON.stringify(made)).digest("hex").slice(0, 16)
  return `${version}@${hash}`
}

const known = new WeakMap<ServerSpec, string>()

/** Returns the name of a base: the version and, with a script, `@` and a hash of it and the variables it reads. */
export const baseName = (spec: ServerSpec): string => {
  const name = known.get(spec) ?? nameOf(spec)
  known.set(spec, name)
  return name
}

/** Returns the version in the name of a base with a script. */
export const variantOf = (name: string): string | undefined =>
  name.includes("@") ? name.slice(0, name.indexOf("@")) : undefined

/** The differences between two definitions of a server (spec 3.12). Pure. */

import { hash } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { type Schema, Struct } from "effect"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import { namesRead, upperCased } from "./environment.ts"
import { isObject, own, type Path, pathText, type Value } from "./json.ts"
import type { DefinitionChange, Needs, ServerDefinition } from "./ServerDefinition.ts"

/** The depth at which values are compared as a whole. */
const leafDepth = ([top]: Path): number => (top === "configs" ? 4 : 2)

/** A difference of two values; undefined: the value is absent. */
export interface Difference {
  readonly path: Path
  readonly from: Value
  readonly to: Value
}

const differencesAt = (path: Path, from: Value, to: Value): ReadonlyArray<Difference> => {
  const opened = path.length < leafDepth(path) && (isObject(from) || isObject(to))
  if (!opened || from === null || to === null) {
    return isDeepStrictEqual(from, to) ? [] : [{ path, from, to }]
  }
  const names = new Set([from, to].flatMap((value) => (isObject(value) ? Object.keys(value) : [])))
  return [...names].flatMap((name) => differencesAt([...path, name], own(from, name), own(to, name)))
}

export const fieldNames = (change: Value): ReadonlyArray<string> =>
  differencesAt([], {}, change).map(({ path }) => pathText(path))

export const differences = (from: ServerDefinition, to: ServerDefinition): ReadonlyArray<Difference> =>
  differencesAt([], from, to)

/** The volumes from which files are made; the others are mounted at each start. */
const templates = (volumes: Value) =>
  Array.isArray(volumes) ? volumes.filter((volume) => own(volume, "mode") === "cow") : []

/** The copies that are made with the instance; the others are made at each start. */
const copiedOnce = (copy: Value) =>
  Array.isArray(copy) ? copy.filter((one) => own(one, "when") !== "start") : []

/** Returns the variables of a server that its install script reads, by their names in upper case. */
const variablesOfScript = ({ env, install_script: install }: ServerDefinition): ReadonlySet<string> => {
  if (install === null || install.skip_scripts) return new Set()
  const names = namesRead(install, { ...upperCased(env), SERVER_MEMORY: "" })
  return new Set(names.map((name) => name.toUpperCase()))
}

/** Of `install_script`: the fields that change the base folder. The others bound the time of an installation. */
const scripted = ["entrypoint", "script", "skip_scripts", "warmup", "post_warmup_script"]

const hasDocker = (runtimes: Value) => Array.isArray(runtimes) && runtimes.includes("docker")

/** The fields that take effect at once, besides `process.stop_timeout`. */
const immediate = ["blueprint_id", "files", "placement", "priority", "restart", "run", "save"] as const

const needsOf = (
  { from, path: [top, part], to }: Difference,
  image: Needs,
  read: ReadonlySet<string>
): Needs => {
  if (immediate.some((field) => field === top)) return "nothing"
  switch (top) {
    case "software":
    case "version":
      return "installation"
    case "copy":
      return isDeepStrictEqual(copiedOnce(from), copiedOnce(to)) ? "restart" : "installation"
    case "env":
      return part !== undefined && read.has(part.toUpperCase()) ? "installation" : "restart"
    case "limits":
      return part === "memory_limit" && read.has("SERVER_MEMORY") ? "installation" : "restart"
    case "image":
      return image
    // The script of a base runs in the container of the server, or in none.
    case "runtimes":
      return hasDocker(from) === hasDocker(to) ? "restart" : "installation"
    case "install_script":
      return part === undefined || scripted.includes(part) ? "installation" : "nothing"
    case "volumes":
      return isDeepStrictEqual(templates(from), templates(to)) ? "restart" : "installation"
    case "process":
      return part === "stop_timeout" ? "nothing" : "restart"
    default:
      return "restart"
  }
}

export const changesBetween = (
  from: ServerDefinition,
  to: ServerDefinition
): ReadonlyArray<DefinitionChange> => {
  // A node pulls the image of a container during the installation.
  const image = to.runtimes.includes("docker") ? "installation" : "restart"
  const read = new Set([...variablesOfScript(from), ...variablesOfScript(to)])
  return differences(from, to)
    .map((difference) => ({
      path: pathText(difference.path),
      from: difference.from ?? null,
      to: difference.to ?? null,
      needs: needsOf(difference, image, read)
    }))
    .sort((a, b) => (a.path < b.path ? -1 : 1))
}

const sorted = (value: Schema.Json): Schema.Json => {
  if (Array.isArray(value)) return value.map(sorted)
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value)
      .map(([name, inner]) => [name, sorted(inner)] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1))
  )
}

const sortedText = (value: Schema.Json): string => JSON.stringify(sorted(value))

const hashOfText = (text: string): string => hash("sha256", text).slice(0, 12)

const revisions = new RecentMap<ServerDefinition, string>()

/** Returns a short hash of a definition. */
export const revisionOf = (definition: ServerDefinition): string => {
  const revision = revisions.get(definition) ?? hashOfText(sortedText(definition))
  revisions.set(definition, revision)
  return revision
}

/** Returns a hash of what an install script does; servers with the same hash, software and version share a base folder. */
export const scriptHash = ({ image, install_script, runtimes }: ServerDefinition): string => {
  if (install_script === null || install_script.skip_scripts) return hashOfText("null")
  const { entrypoint, post_warmup_script, script, warmup } = install_script
  const where = runtimes.includes("docker") ? image : ""
  return hashOfText(sortedText([entrypoint, script, warmup, warmup ? post_warmup_script : "", where]))
}

/** Returns a definition with those values of another that take effect at once. */
export const withImmediate = (definition: ServerDefinition, next: ServerDefinition): ServerDefinition => {
  const { stop_timeout: _, ...process } = definition.process
  const { stop_timeout } = next.process
  return {
    ...Struct.omit(definition, immediate),
    ...Struct.pick(next, immediate),
    process: stop_timeout === undefined ? process : { ...process, stop_timeout }
  }
}

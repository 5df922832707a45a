/** Makes the definition of a server from a blueprint, its software and overrides. No I/O. */

import { Result, Schema } from "effect"
import type { Blueprint } from "../../contract/domain/Blueprint.ts"
import { type ConfigPatch, type ConfigPatches, parserOf } from "../../contract/domain/ConfigPatch.ts"
import {
  type DeclaredVariables,
  isOfDaemon,
  scriptWords,
  tooMuch,
  VariableName,
  VariableValue,
  whyNotSet
} from "../../contract/domain/environment.ts"
import { InvalidRequest, joinReasons } from "../../contract/domain/errors.ts"
import { patchConflicts, planFiles } from "../../contract/domain/filePlan.ts"
import { withoutNoWeight } from "../../contract/domain/Limits.ts"
import { ImageReference, type Overrides, referenceOf } from "../../contract/domain/Overrides.ts"
import type { ServerDefinition } from "../../contract/domain/ServerDefinition.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { defined } from "../../shared/work/defined.ts"
import { printable } from "./parse/located.ts"
import { instancePath } from "./parse/paths.ts"
import { mapVersion } from "./parse/versions.ts"
import { placeholderVariables, unknownPorts } from "./placeholders.ts"

interface Refusal {
  readonly detail: string
  readonly hint?: string
}

/** Fails with all reasons together. */
const refusedFor = (refusals: ReadonlyArray<Refusal>): Result.Result<never, InvalidRequest> => {
  const detail = joinReasons(refusals.map(({ detail }) => detail))
  const hints = [...new Set(refusals.flatMap(({ hint }) => hint ?? []))].slice(0, 3)
  return Result.fail(new InvalidRequest(hints.length === 0 ? { detail } : { detail, hint: hints.join(" ") }))
}

/**
 * Returns the definition of a server (spec 3.4). Limits and configs come from software, blueprint and overrides, by
 * field or key; a restart rule applies to saved servers only.
 * @param software all: the overrides may name another software than the blueprint
 * @error InvalidRequest software that is not defined, a version with no image, overrides that do not fit
 */
export const resolve = (
  blueprint: Blueprint,
  overrides: Overrides,
  softwares: ReadonlyMap<string, Software>
): Result.Result<ServerDefinition, InvalidRequest> => {
  const id = overrides.software ?? blueprint.software
  const software = softwares.get(id)
  const version = overrides.version ?? blueprint.version
  const image = software === undefined ? undefined : imageOf(blueprint, overrides, software, version)
  const files = { volumes: blueprint.state?.volumes ?? [], mounts: blueprint.state?.mounts ?? [] }
  const copy = blueprint.state?.copy ?? []
  const given = mergeConfigs(software?.configs ?? {}, blueprint.configs)
  const overriding = patchesOf(overrides.configs ?? {}, given, software !== undefined)
  const conflicts = patchConflicts(planFiles({ ...files, copy }).plan, Object.keys(overriding.patches))
  const env = environmentOf(blueprint, overrides.env ?? {})
  const refusals: ReadonlyArray<Refusal> = [
    ...(software === undefined
      ? [{ detail: `software is not defined: ${id}`, hint: "GET /api/software lists what is defined." }]
      : []),
    ...(image !== undefined && Result.isFailure(image)
      ? [
          {
            detail: image.failure,
            hint: "Name another version or an image, or map the version in the software's file."
          }
        ]
      : []),
    ...overriding.refusals,
    ...conflicts.map(({ reason }) => ({ detail: `overrides.configs: ${reason}` })),
    ...env.refusals
  ]
  if (software === undefined || image === undefined || Result.isFailure(image) || refusals.length > 0) {
    return refusedFor(refusals)
  }
  const patches = mergeConfigs(given, overriding.patches)
  const [unknown] = unknownPorts([software.process.invocation, patches, env.env], blueprint.port_names)
  if (unknown !== undefined) {
    return refusedFor([
      {
        detail: `placeholder ${printable(unknown)}`,
        hint: `Name the ports in \`server.ports\` of blueprint ${blueprint.id}, or use {{server.build.ports.N}}.`
      }
    ])
  }
  const save = overrides.save ?? blueprint.save
  const restart = { ...blueprint.restart, ...overrides.restart }
  const run = overrides.run ?? blueprint.run
  const priority = overrides.priority ?? blueprint.priority
  const stop_timeout = overrides.stop_timeout ?? blueprint.stop_timeout
  return Result.succeed({
    blueprint_id: blueprint.id,
    software: id,
    version,
    image: image.success,
    process: stop_timeout === undefined ? software.process : { ...software.process, stop_timeout },
    install_script: software.install_script,
    limits: withoutNoWeight({ ...software.limits, ...blueprint.limits, ...overrides.limits }),
    ports: blueprint.ports,
    ...(blueprint.port_names === undefined ? {} : { port_names: blueprint.port_names }),
    configs: patches,
    ...files,
    copy,
    env: env.env,
    ...(blueprint.files === undefined ? {} : { files: blueprint.files }),
    runtimes: software.runtimes,
    placement: blueprint.placement,
    restart: save ? restart : { ...restart, on_crash: false },
    ...defined({ run, priority }),
    save
  })
}

/** Returns the variables of `state.env`, of all placeholders, and of the install script. */
export const declaredVariables = (
  blueprint: Blueprint,
  software: Software | undefined
): DeclaredVariables => {
  const env = blueprint.state?.env ?? {}
  const placed = [software?.process.invocation ?? "", software?.configs ?? {}, blueprint.configs, env]
  const script = software?.install_script ?? null
  const words = script === null ? [] : scriptWords(script)
  return {
    names: new Set([...Object.keys(env), ...placeholderVariables(placed), ...words]),
    allowed: blueprint.env_allow
  }
}

/** The overrides' variables come last; also returns why the caller may not set some. */
const environmentOf = (
  blueprint: Blueprint,
  overrides: NonNullable<Overrides["env"]>
): { readonly env: ServerDefinition["env"]; readonly refusals: ReadonlyArray<Refusal> } => {
  const refusals = Object.entries(overrides).flatMap(([name, value]): ReadonlyArray<Refusal> => {
    const where = `overrides.env.${printable(name, 80)}`
    if (!Schema.is(VariableName)(name)) {
      return [
        { detail: `${where}: expected a name of at most 128 characters from A-Za-z0-9_, no digit first` }
      ]
    }
    const why = whyNotSet(name, blueprint.env_allow)
    if (why !== undefined) {
      const hint = isOfDaemon(name)
        ? "Use another name."
        : `Leave the variable out, or list ${name} in \`state.env-allow\` of blueprint ${blueprint.id}.`
      return [{ detail: `${where}: refused: ${why}`, hint }]
    }
    const decoded = Schema.decodeUnknownResult(VariableValue)(value)
    return Result.isFailure(decoded) ? [{ detail: `${where}: ${decoded.failure.message}` }] : []
  })
  const env = { ...blueprint.state?.env, ...overrides }
  const much = refusals.length > 0 ? undefined : tooMuch(env)
  return much === undefined
    ? { env, refusals }
    : { env, refusals: [{ detail: `overrides.env, with the variables of the blueprint: ${much}` }] }
}

interface ImageChoice {
  /** As written: a key of the software's images, or an image reference. */
  readonly image: string | undefined
  readonly version: string
}

/** Returns the named image, else the mapped one, else the only one; empty for a process without an image. */
export const resolveImage = (software: Software, choice: ImageChoice): Result.Result<string, string> => {
  const { image, version } = choice
  if (image !== undefined) {
    const named = namedImage(software, image)
    if (named !== undefined) return Result.succeed(named)
    const keys = Object.keys(software.images).join(", ") || "none"
    return Schema.is(ImageReference)(image)
      ? Result.succeed(image)
      : Result.fail(
          `image \`${image}\` is neither a key of the images of software ${software.id} (${printable(keys)}) nor an image reference`
        )
  }
  const references = Object.values(software.images)
  if (references.length === 0) {
    return software.runtimes.includes("process")
      ? Result.succeed("")
      : Result.fail(`software ${software.id} has no images and runs in containers only; name an \`image\``)
  }
  const only = software.mappings.length === 0 && references.length === 1 ? references[0] : undefined
  const key = mapVersion(software.mappings, version)
  const mapped = only ?? (key === undefined ? undefined : (namedImage(software, key) ?? referenceOf(key)))
  return mapped === undefined
    ? Result.fail(`no image of software ${software.id} maps to version ${printable(version, 80)}`)
    : Result.succeed(mapped)
}

const namedImage = (software: Software, key: string): string | undefined =>
  Object.hasOwn(software.images, key) ? software.images[key] : undefined

/**
 * An image in the overrides wins. If software or version is overridden, the mappings decide, and the blueprint's
 * image applies only if the software is the same and maps nothing.
 */
const imageOf = (
  blueprint: Blueprint,
  overrides: Overrides,
  software: Software,
  version: string
): Result.Result<string, string> => {
  if (overrides.image !== undefined) return resolveImage(software, { image: overrides.image, version })
  const sameSoftware = software.id === blueprint.software
  if (sameSoftware && version === blueprint.version)
    return resolveImage(software, { image: blueprint.image, version })
  const mapped = resolveImage(software, { image: undefined, version })
  return Result.isFailure(mapped) && sameSoftware && blueprint.image !== undefined
    ? resolveImage(software, { image: blueprint.image, version })
    : mapped
}

const mergeFinds = (finds: ReadonlyArray<ConfigPatch["find"]>): ConfigPatch["find"] =>
  Object.fromEntries(finds.flatMap((find) => Object.entries(find)))

const own = (patches: ConfigPatches, file: string): ConfigPatch | undefined =>
  Object.hasOwn(patches, file) ? patches[file] : undefined

/** By file, then by key; the later parser wins. */
const mergeConfigs = (earlier: ConfigPatches, later: ConfigPatches): ConfigPatches => ({
  ...earlier,
  ...Object.fromEntries(
    Object.entries(later).map(([file, { find, parser }]) => [
      file,
      { parser, find: mergeFinds([own(earlier, file)?.find ?? {}, find]) }
    ])
  )
})

/** The files get their shortest form. `isWhole`: `given` has the patches of the software. */
const patchesOf = (
  overrides: NonNullable<Overrides["configs"]>,
  given: ConfigPatches,
  isWhole: boolean
): { readonly patches: ConfigPatches; readonly refusals: ReadonlyArray<Refusal> } => {
  // By file; several names may lead to one.
  const patches = new Map<
    string,
    { readonly parser: ConfigPatch["parser"]; readonly finds: Array<ConfigPatch["find"]> }
  >()
  const refusals: Array<Refusal> = []
  for (const [name, override] of Object.entries(overrides)) {
    const file = instancePath(name)
    if (Result.isFailure(file)) {
      refusals.push({ detail: `overrides.configs: ${file.failure}` })
      continue
    }
    const before = patches.get(file.success)
    const earlier = before ?? own(given, file.success)
    const parser = override.parser === undefined ? earlier?.parser : parserOf(override.parser)
    if (parser !== undefined) {
      const finds = before?.finds ?? []
      finds.push(override.find)
      patches.set(file.success, { parser, finds })
    } else if (isWhole) {
      const where = printable(file.success, 80)
      const detail = `overrides.configs["${where}"].parser is missing: neither blueprint nor software patches this file`
      refusals.push({ detail })
    }
  }
  const merged = Array.from(patches, ([file, { finds, parser }]) => [
    file,
    { parser, find: mergeFinds(finds) }
  ])
  return { patches: Object.fromEntries(merged), refusals }
}

/** Makes the definition of a server from a blueprint, its software and overrides. No I/O. */
import { Result, Schema } from "effect"
import type { Blueprint } from "../domain/Blueprint.ts"
import { type ConfigPatch, type ConfigPatches, parserOf } from "../domain/ConfigPatch.ts"
import { isOfDaemon, tooMuch, VariableName, VariableValue, whyNotSet } from "../domain/environment.ts"
import { InvalidRequest } from "../domain/errors.ts"
import { patchConflicts, planFiles } from "../domain/filePlan.ts"
import { withoutNoWeight } from "../domain/Limits.ts"
import type { Overrides } from "../domain/Overrides.ts"
import type { ServerDefinition } from "../domain/ServerDefinition.ts"
import type { Software } from "../domain/Software.ts"
import { resolveImage } from "./image.ts"
import { instancePath } from "./parse/paths.ts"
import { printable } from "./parse/problem.ts"
import { unknownPorts } from "./placeholders.ts"

const invalid = (detail: string, hint?: string) =>
  Result.fail(new InvalidRequest(hint === undefined ? { detail } : { detail, hint }))

/**
 * Returns the definition of a server (decisions, section 3, "overrides"). Limits: software, blueprint, overrides, by
 * field. Configs: the same three, by file, then by key. A restart rule applies to saved servers only.
 *
 * @param software the software set: the overrides may name another software than the blueprint
 * @error InvalidRequest software that is not defined, a version with no image, overrides that do not fit
 */
export const resolve = (
  blueprint: Blueprint,
  overrides: Overrides,
  softwares: ReadonlyMap<string, Software>
): Result.Result<ServerDefinition, InvalidRequest> => {
  const id = overrides.software ?? blueprint.software
  const software = softwares.get(id)
  if (software === undefined) {
    return invalid(`software is not defined: ${id}`, "GET /api/software lists what is defined.")
  }
  const version = overrides.version ?? blueprint.version
  const image = imageOf(blueprint, overrides, software, version)
  if (Result.isFailure(image)) {
    return invalid(
      image.failure,
      "Name another version or an image, or map the version in the software's file."
    )
  }
  const files = { volumes: blueprint.state?.volumes ?? [], mounts: blueprint.state?.mounts ?? [] }
  const copy = blueprint.state?.copy ?? []
  const given = mergeConfigs(software.configs, blueprint.configs)
  const overriding = Result.flatMap(patchesOf(overrides.configs ?? {}, given), (patches) => {
    const [conflict] = patchConflicts(planFiles({ ...files, copy }).plan, Object.keys(patches))
    return conflict === undefined
      ? Result.succeed(patches)
      : Result.fail(`overrides.configs: ${conflict.reason}`)
  })
  if (Result.isFailure(overriding)) return invalid(overriding.failure)
  const env = environmentOf(blueprint, overrides.env ?? {})
  if (Result.isFailure(env)) return Result.fail(env.failure)
  const patches = mergeConfigs(given, overriding.success)
  const [unknown] = unknownPorts([software.process.invocation, patches, env.success], blueprint.port_names)
  if (unknown !== undefined) {
    return invalid(
      `placeholder ${printable(unknown)}`,
      `Name the ports in \`server.ports\` of blueprint ${blueprint.id}, or use {{server.build.ports.N}}.`
    )
  }
  const save = overrides.save ?? blueprint.save
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
    env: env.success,
    runtimes: software.runtimes,
    placement: blueprint.placement,
    restart: save ? blueprint.restart : { ...blueprint.restart, on_crash: false },
    save
  })
}

/** Returns the blueprint's variables, then those of the overrides that a caller may set. */
const environmentOf = (
  blueprint: Blueprint,
  overrides: NonNullable<Overrides["env"]>
): Result.Result<ServerDefinition["env"], InvalidRequest> => {
  for (const [name, value] of Object.entries(overrides)) {
    const where = `overrides.env.${printable(name, 80)}`
    if (!Schema.is(VariableName)(name)) {
      return invalid(`${where}: expected a name of at most 128 characters from A-Za-z0-9_, no digit first`)
    }
    const why = whyNotSet(name, blueprint.env_allow)
    if (why !== undefined) {
      const hint = isOfDaemon(name)
        ? "Use another name."
        : `Leave the variable out, or list ${name} in \`state.env-allow\` of blueprint ${blueprint.id}.`
      return invalid(`${where}: refused: ${why}`, hint)
    }
    const decoded = Schema.decodeUnknownResult(VariableValue)(value)
    if (Result.isFailure(decoded)) return invalid(`${where}: ${decoded.failure.message}`)
  }
  const env = { ...blueprint.state?.env, ...overrides }
  const much = tooMuch(env)
  return much === undefined
    ? Result.succeed(env)
    : invalid(`overrides.env, with the variables of the blueprint: ${much}`)
}

/**
 * An image in the overrides wins. The blueprint's image belongs to its software and version: if these are overridden,
 * the mappings decide, and the blueprint's image applies only if the software is the same and maps nothing.
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

const mergePatch = (earlier: ConfigPatch | undefined, later: ConfigPatch): ConfigPatch => ({
  parser: later.parser,
  find: { ...earlier?.find, ...later.find }
})

const own = (patches: ConfigPatches, file: string): ConfigPatch | undefined =>
  Object.hasOwn(patches, file) ? patches[file] : undefined

/** By file, then by key; the later parser wins. */
const mergeConfigs = (earlier: ConfigPatches, later: ConfigPatches): ConfigPatches => ({
  ...earlier,
  ...Object.fromEntries(
    Object.entries(later).map(([file, patch]) => [file, mergePatch(own(earlier, file), patch)])
  )
})

/** Returns the patches of the overrides by the shortest form of the file; without a parser, the earlier one stays. */
const patchesOf = (
  overrides: NonNullable<Overrides["configs"]>,
  given: ConfigPatches
): Result.Result<ConfigPatches, string> => {
  let patches: ConfigPatches = {}
  for (const [name, override] of Object.entries(overrides)) {
    const file = instancePath(name)
    if (Result.isFailure(file)) return Result.fail(`overrides.configs: ${file.failure}`)
    const earlier = own(patches, file.success) ?? own(given, file.success)
    const parser = override.parser === undefined ? earlier?.parser : parserOf(override.parser)
    if (parser === undefined) {
      const where = printable(file.success, 80)
      return Result.fail(
        `overrides.configs["${where}"].parser is missing: neither blueprint nor software patches this file`
      )
    }
    patches = mergeConfigs(patches, Object.fromEntries([[file.success, { parser, find: override.find }]]))
  }
  return Result.succeed(patches)
}

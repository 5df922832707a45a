/** The JSON forms of blueprints and mixins, and the warnings of a load. No I/O. */
import { Result } from "effect"
import type { Blueprint, BlueprintView, MixinView } from "../../contract/domain/Blueprint.ts"
import { patchConflicts, planFiles } from "../../contract/domain/filePlan.ts"
import type { Software } from "../../contract/domain/Software.ts"
import type { BlueprintSet, SoftwareSet } from "./definitions.ts"
import { configsOf, type MixinFile, stateOf } from "./parse/files.ts"
import { printable } from "./parse/problem.ts"
import { unknownPlaceholders, unknownPorts } from "./placeholders.ts"
import { resolveImage } from "./resolve.ts"

const imageOf = (blueprint: Blueprint, software: SoftwareSet): Result.Result<string, string> => {
  const defined = software.get(blueprint.software)
  return defined === undefined
    ? Result.fail(`software ${blueprint.software} is not defined`)
    : resolveImage(defined, { image: blueprint.image, version: blueprint.version })
}

/** The JSON form of a blueprint (spec 4.1); `image` is empty if the software is not defined or maps nothing. */
export const blueprintView = (blueprint: Blueprint, software: SoftwareSet): BlueprintView => ({
  metadata: { id: blueprint.id, name: blueprint.name, type: blueprint.type },
  server: {
    software: blueprint.software,
    version: blueprint.version,
    image: Result.getOrElse(imageOf(blueprint, software), () => ""),
    limits: blueprint.limits
  },
  state: blueprint.state,
  ...(blueprint.files === undefined ? {} : { files: blueprint.files }),
  ...(blueprint.backup === undefined ? {} : { backup: blueprint.backup }),
  ...(blueprint.schedules === undefined ? {} : { schedules: blueprint.schedules }),
  save: blueprint.save,
  ...(blueprint.start === undefined ? {} : { start: blueprint.start }),
  annotations: blueprint.annotations
})

export const mixinView = (mixin: MixinFile): MixinView => {
  const { annotations, backup, description, files, id, schedules, state } = mixin
  const { configs, ...server } = mixin.server
  return {
    id,
    description,
    extends: mixin.extends.map((parent) => parent.id),
    server: configs === undefined ? server : { ...server, configs: configsOf(mixin.server) },
    state: state === null ? null : stateOf(state),
    ...(Object.keys(files).length === 0 ? {} : { files }),
    ...(Object.keys(backup).length === 0 ? {} : { backup }),
    ...(schedules.length === 0 ? {} : { schedules }),
    annotations,
    mixin: { id, description }
  }
}

/** Returns why no server can be created from a blueprint, or what of it looks mistyped. */
export const blueprintNotes = (blueprint: Blueprint, software: SoftwareSet): ReadonlyArray<string> => {
  const image = imageOf(blueprint, software)
  return [
    ...(Result.isFailure(image) ? [image.failure] : []),
    ...bareImage(blueprint, software.get(blueprint.software)),
    ...patchNotes(blueprint, software.get(blueprint.software)),
    ...copyNotes(blueprint),
    ...restartNotes(blueprint),
    ...placeholderNotes([blueprint.configs, blueprint.state?.env ?? {}]),
    ...portNotes(blueprint, software.get(blueprint.software))
  ]
}

/** Returns one line per blueprint from which no server can be created, or that looks mistyped. */
export const blueprintWarnings = (set: BlueprintSet, software: SoftwareSet): ReadonlyArray<string> =>
  [...set.blueprints.values()].flatMap((blueprint) => {
    const file = printable(set.files.get(blueprint.id) ?? blueprint.id)
    return blueprintNotes(blueprint, software).map((note) => `${file}: ${note}`)
  })

/** `java_12` is a valid reference, but likely a mistake if the images are `java_21` and `java_25`. */
const bareImage = (blueprint: Blueprint, software: Software | undefined): ReadonlyArray<string> => {
  const keys = Object.keys(software?.images ?? {})
  const image = blueprint.image ?? ""
  if (image === "" || keys.length === 0 || keys.includes(image) || /[/:@~ ]/.test(image)) return []
  return [
    `image \`${image}\` is no key of the software's images (${keys.join(", ")}) and is taken as a reference`
  ]
}

/** A volume may bring a file that the software patches: it must have the patched values. */
const patchNotes = (blueprint: Blueprint, software: Software | undefined): ReadonlyArray<string> => {
  const { state } = blueprint
  if (software === undefined || state === null) return []
  return patchConflicts(planFiles(state).plan, Object.keys(software.configs)).map(
    ({ reason }) => `software ${software.id} patches a file that cannot be written: ${reason}`
  )
}

/** Notes about copies per blueprint; more would only cost memory. */
const MAX_COPY_NOTES = 20

const copyNotes = ({ state }: Blueprint): ReadonlyArray<string> =>
  state === null
    ? []
    : planFiles(state)
        .hidden.slice(0, MAX_COPY_NOTES)
        .map(({ reason }) => reason)

/** A server that is not saved is deleted after a crash, so it is never restarted. */
const restartNotes = ({ restart, save }: Blueprint): ReadonlyArray<string> =>
  restart.on_crash && !save
    ? ["`server.restart.on_crash` has no effect without `save: true`, here or in the overrides of a creation"]
    : []

/** A blueprint's own placeholders are checked when its file is read. */
const portNotes = ({ port_names }: Blueprint, software: Software | undefined): ReadonlyArray<string> =>
  software === undefined
    ? []
    : unknownPorts([software.process.invocation, software.configs], port_names).map(
        (note) => `software ${software.id}: ${note}`
      )

const placeholderNotes = (values: Parameters<typeof unknownPlaceholders>[0]): ReadonlyArray<string> =>
  unknownPlaceholders(values).map((written) => `unknown placeholder ${printable(written, 80)}`)

/** Returns one line per unknown placeholder of a software. */
export const softwareWarnings = (set: SoftwareSet): ReadonlyArray<string> =>
  [...set.values()].flatMap((software) =>
    placeholderNotes([software.process.invocation, software.configs]).map(
      (note) => `software ${software.id}: ${note}`
    )
  )

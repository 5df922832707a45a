/** Sets of definitions from the files of a folder, with their JSON forms and the warnings of a load. */

import { Effect, Result } from "effect"
import type { Blueprint, BlueprintView, MixinView } from "../../contract/domain/Blueprint.ts"
import { patchConflicts, planFiles } from "../../contract/domain/filePlan.ts"
import { MOST_SCHEDULES } from "../../contract/domain/Schedule.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { defined } from "../../shared/work/defined.ts"
import { compose, flattenMixins } from "./compose.ts"
import { type AnyFile, type BlueprintFile, configsOf, type MixinFile, stateOf } from "./parse/files.ts"
import { type Problem, printable, sortProblems } from "./parse/located.ts"
import type { Folder } from "./parse/parse.ts"
import { type Mount, readFolder } from "./parse/readFolder.ts"
import { unknownPlaceholders, unknownPorts } from "./placeholders.ts"
import { resolveImage } from "./resolve.ts"

/** Definitions sorted by id, and the problems of the files that are not among them. */
export interface Definitions<A> {
  readonly value: A
  readonly problems: ReadonlyArray<Problem>
}

export type SoftwareSet = ReadonlyMap<string, Software>

export interface BlueprintSet {
  readonly blueprints: ReadonlyMap<string, Blueprint>
  readonly mixins: ReadonlyMap<string, MixinFile>
  readonly files: ReadonlyMap<string, string>
}

/** Returns the files by id, sorted; a second file with the same id is a problem that names both. */
const unique = <F extends AnyFile>(
  files: ReadonlyArray<F>,
  problems: Array<Problem>
): ReadonlyMap<string, F> => {
  const byId = new Map<string, F>()
  for (const file of files) {
    const first = byId.get(file.id)
    if (first === undefined) byId.set(file.id, file)
    else {
      const reason = `the ${file.kind} id \`${file.id}\` is taken by ${first.file}:${first.at.line}`
      problems.push({ file: file.file, ...file.at, reason })
    }
  }
  return sortedById(byId)
}

const sortedById = <A>(byId: ReadonlyMap<string, A>): ReadonlyMap<string, A> =>
  new Map([...byId].sort(([a], [b]) => (a < b ? -1 : 1)))

export const softwareSet = (files: ReadonlyArray<AnyFile>): Definitions<SoftwareSet> => {
  const problems: Array<Problem> = []
  const byId = unique(
    files.filter((file) => file.kind === "software"),
    problems
  )
  return { value: new Map([...byId].map(([id, file]) => [id, file.software])), problems }
}

export const blueprintSet = (files: ReadonlyArray<AnyFile>): Definitions<BlueprintSet> => {
  const problems: Array<Problem> = []
  const mixinFiles = unique<MixinFile>(
    files.filter((file) => file.kind === "mixin"),
    problems
  )
  const blueprintFiles = unique<BlueprintFile>(
    files.filter((file) => file.kind === "blueprint"),
    problems
  )
  const flat = flattenMixins(mixinFiles)
  const mixins = new Map<string, MixinFile>()
  for (const [id, mixin] of mixinFiles) {
    const result = flat.get(id)
    if (result !== undefined && Result.isFailure(result)) problems.push(result.failure.problem)
    else mixins.set(id, mixin)
  }
  const blueprints = new Map<string, Blueprint>()
  let schedules = 0
  for (const [id, file] of blueprintFiles) {
    const composed = compose(file, flat)
    if (Result.isFailure(composed)) {
      problems.push(...composed.failure)
      continue
    }
    schedules += composed.success.schedules?.length ?? 0
    if (schedules > MOST_SCHEDULES) {
      const reason = `the blueprints up to this one have more than ${MOST_SCHEDULES} schedules`
      problems.push({ file: file.file, ...file.at, reason })
    } else blueprints.set(id, composed.success)
  }
  const fileOf = new Map([...blueprintFiles].map(([id, { file }]) => [id, file]))
  return { value: { blueprints, mixins, files: fileOf }, problems }
}

export interface Loaded<A> {
  readonly value: A
  readonly problems: ReadonlyArray<Problem>
  /** Files that were read, valid or not. */
  readonly files: number
  /** One line each; a file is named first. */
  readonly warnings: ReadonlyArray<string>
}

/** Reads a folder with its `mounts` into a set. @error FolderUnreadable the folder itself cannot be read */
export const loadFolder = Effect.fnUntraced(function* <A>(
  folder: Folder,
  directory: string,
  build: (files: ReadonlyArray<AnyFile>) => Definitions<A>,
  mounts: ReadonlyArray<Mount> = []
) {
  const contents = yield* readFolder(folder, directory, mounts)
  const { problems, value } = build(contents.files.flatMap(({ definition }) => definition ?? []))
  return {
    value,
    files: contents.files.length,
    problems: sortProblems([...contents.files.flatMap((file) => file.problems), ...problems]),
    warnings: [...contents.warnings, ...contents.files.flatMap((file) => file.warnings)]
  } satisfies Loaded<A>
})

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
  ...defined({ files: blueprint.files, backup: blueprint.backup, schedules: blueprint.schedules }),
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

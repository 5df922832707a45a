/** Composition of blueprints and mixins (spec 4.2). No I/O. */

import { Result, type Schema } from "effect"
import type { BackupRule } from "../../contract/domain/BackupTarget.ts"
import { type Blueprint, DEFAULT_BACKOFF, type Volume } from "../../contract/domain/Blueprint.ts"
import { tooMuch } from "../../contract/domain/environment.ts"
import type { FileRules } from "../../contract/domain/Files.ts"
import { patchConflicts, planFiles } from "../../contract/domain/filePlan.ts"
import type { BlueprintSchedule } from "../../contract/domain/Schedule.ts"
import { defined } from "../../shared/work/defined.ts"
import type { Written } from "./parse/decode.ts"
import { type BlueprintFile, type Composable, configsOf, type MixinFile, stateOf } from "./parse/files.ts"
import { type Origin, type Position, type Problem, printable } from "./parse/located.ts"
import { tooManyPatterns } from "./parse/parseBlueprint.ts"
import { tooManySchedules } from "./parse/parseSchedules.ts"
import type { ServerPart } from "./parse/parseServer.ts"
import { type StatePart, variablesOf } from "./parse/parseState.ts"
import { unknownPorts } from "./placeholders.ts"

const nothing: Composable = { server: {}, state: null, files: {}, backup: {}, schedules: [], annotations: {} }

/** The reason why a composition fails: the cause and the ids that lead to it. */
interface Failure {
  readonly problem: Problem
  readonly cause: string
  readonly chain: ReadonlyArray<string>
}

/** Mixins with their parents merged into them, by id; the reason for a mixin that cannot be merged. */
export type FlatMixins = ReadonlyMap<string, Result.Result<Composable, Failure>>

const MAX_CHAIN = 32

const failure = (file: string, at: Position, cause: string, ids: ReadonlyArray<string>) => {
  const chain = ids.length > MAX_CHAIN ? [...ids.slice(0, MAX_CHAIN), "..."] : ids
  const reason = `${cause}: ${chain.join(" -> ")}`
  return Result.fail({ problem: { file, line: at.line, column: at.column, reason }, cause, chain })
}

/** Flattens each mixin once: parents first, left to right, then its own parts. */
export const flattenMixins = (mixins: ReadonlyMap<string, MixinFile>): FlatMixins => {
  const done = new Map<string, Result.Result<Composable, Failure>>()
  for (const mixin of parentsFirst(mixins)) done.set(mixin.id, flatten(mixin, mixins, done))
  return done
}

const flatten = (
  mixin: MixinFile,
  mixins: ReadonlyMap<string, MixinFile>,
  done: FlatMixins
): Result.Result<Composable, Failure> => {
  let parts = nothing
  for (const parent of mixin.extends) {
    const fail = (cause: string, chain: ReadonlyArray<string> = [parent.id]) =>
      failure(mixin.file, parent, cause, [mixin.id, ...chain])
    const flat = done.get(parent.id)
    if (flat === undefined) {
      return mixins.has(parent.id)
        ? fail("the mixins extend each other in a circle")
        : fail(`no mixin \`${parent.id}\``)
    }
    if (Result.isFailure(flat)) return fail(flat.failure.cause, flat.failure.chain)
    parts = merge(parts, flat.success)
  }
  return Result.succeed(merge(parts, mixin))
}

/** Returns every mixin after its parents; only in a circle, a parent comes later. */
const parentsFirst = (mixins: ReadonlyMap<string, MixinFile>): ReadonlyArray<MixinFile> => {
  const sorted: Array<MixinFile> = []
  const seen = new Set<string>()
  for (const start of mixins.values()) {
    // An explicit stack instead of recursion: a chain may be as long as there are files.
    const path = seen.has(start.id) ? [] : [{ mixin: start, next: 0 }]
    seen.add(start.id)
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const reference = top.mixin.extends[top.next++]
      const parent = reference === undefined ? undefined : mixins.get(reference.id)
      if (reference === undefined) {
        sorted.push(top.mixin)
        path.pop()
      } else if (parent !== undefined && !seen.has(parent.id)) {
        seen.add(parent.id)
        path.push({ mixin: parent, next: 0 })
      }
    }
  }
  return sorted
}

/** Composes a blueprint: its mixins merged left to right, then its own parts. Fails with the problems of its file. */
export const compose = (
  file: BlueprintFile,
  mixins: FlatMixins
): Result.Result<Blueprint, ReadonlyArray<Problem>> => {
  const fail = (at: Position, cause: string, chain: ReadonlyArray<string>) =>
    Result.mapError(failure(file.file, at, cause, [file.id, ...chain]), ({ problem }) => [problem])
  const included: Array<Included> = []
  for (const include of file.includes) {
    const flat = mixins.get(include.id)
    if (flat === undefined) return fail(include, `no mixin \`${include.id}\``, [include.id])
    if (Result.isFailure(flat)) return fail(include, flat.failure.cause, flat.failure.chain)
    included.push({ at: include, parts: flat.success })
  }
  const parts = merge(
    included.reduce((all, one) => merge(all, one.parts), nothing),
    file
  )
  const { annotations, backup, files, schedules, server, state } = parts
  const { software, version } = server
  if (software === undefined || version === undefined) {
    const cause = `\`server.${software === undefined ? "software" : "version"}\` is missing`
    return fail(
      file.at,
      cause,
      file.includes.length === 0 ? [] : [file.includes.map(({ id }) => id).join(", ")]
    )
  }
  const excess = Object.entries({
    "state.env": tooMuch(variablesOf(state?.env ?? {})),
    "files.deny": tooManyPatterns(files.deny ?? []),
    "files.read_only": tooManyPatterns(files.read_only ?? []),
    "backup.exclude": tooManyPatterns(backup.exclude ?? []),
    schedules: tooManySchedules(schedules)
  }).find(([, why]) => why !== undefined)
  if (excess !== undefined) return fail(file.at, `\`${excess[0]}\` with its mixins: ${excess[1]}`, [])
  const conflicts = conflictsOf(file, included, parts)
  if (conflicts.length > 0) return Result.fail(conflicts)
  const unknown = unknownPortsOf(file, parts)
  if (unknown.length > 0) return Result.fail(unknown)
  return Result.succeed({
    id: file.id,
    name: file.name,
    type: file.type,
    software,
    version,
    ...(server.image === undefined ? {} : { image: server.image }),
    limits: server.limits ?? {},
    ...portsOf(server.ports ?? 1),
    ...(server.stop_timeout === undefined ? {} : { stop_timeout: server.stop_timeout }),
    configs: configsOf(server),
    placement: { locations: [], anti_affinity: false, ...server.placement },
    restart: { on_crash: false, max_per_hour: 5, ...DEFAULT_BACKOFF, ...server.restart },
    ...defined({ run: server.run, priority: server.priority }),
    state: state === null ? null : stateOf(state),
    env_allow: state?.env_allow ?? [],
    ...(Object.keys(files).length === 0 ? {} : { files }),
    ...(Object.keys(backup).length === 0 ? {} : { backup }),
    ...(schedules.length === 0 ? {} : { schedules }),
    save: file.save,
    ...(file.start === undefined ? {} : { start: file.start }),
    annotations
  })
}

const portsOf = (ports: NonNullable<ServerPart["ports"]>): Pick<Blueprint, "ports" | "port_names"> =>
  typeof ports === "number" ? { ports } : { ports: ports.length, port_names: ports }

/** Returns the problems of placeholders whose port no name of `server.ports` is. */
const unknownPortsOf = (file: BlueprintFile, { server, state }: Composable): ReadonlyArray<Problem> => {
  const { port_names } = portsOf(server.ports ?? 1)
  const problems = (at: Position, where: string, values: Schema.Json): ReadonlyArray<Problem> =>
    unknownPorts([values], port_names).map((reason) => ({
      file: file.file,
      line: at.line,
      column: at.column,
      reason: `${where}: ${reason}`
    }))
  return [
    ...Object.entries(server.configs ?? {}).flatMap(([name, { at, value }]) =>
      problems(at.file === file.file ? at : file.at, `\`server.configs\`, ${printable(name, 80)}`, value.find)
    ),
    ...problems(file.at, "`state.env`", state?.env ?? {})
  ]
}

export const merge = (earlier: Composable, later: Composable): Composable => ({
  server: mergeServer(earlier.server, later.server),
  state: mergeState(earlier.state, later.state),
  files: mergeFiles(earlier.files, later.files),
  backup: mergeBackup(earlier.backup, later.backup),
  schedules: mergeSchedules(earlier.schedules, later.schedules),
  annotations: { ...earlier.annotations, ...later.annotations }
})

/** Scalars: the later value. `limits`, `placement`, `restart`: by field. `configs`: by file. */
const mergeServer = (earlier: ServerPart, later: ServerPart): ServerPart => ({
  ...earlier,
  ...later,
  limits: { ...earlier.limits, ...later.limits },
  configs: { ...earlier.configs, ...later.configs },
  placement: { ...earlier.placement, ...later.placement },
  restart: { ...earlier.restart, ...later.restart }
})

const mergeState = (earlier: StatePart | null, later: StatePart | null): StatePart | null => {
  if (earlier === null || later === null) return later ?? earlier
  return {
    volumes: mergeVolumes(earlier.volumes, later.volumes),
    mounts: append(earlier.mounts, later.mounts),
    copy: append(earlier.copy, later.copy),
    env: { ...earlier.env, ...later.env },
    env_allow: append(earlier.env_allow, later.env_allow)
  }
}

/** An entry that reaches a blueprint twice (two mixins with one parent) is one entry. */
const append = <A>(earlier: ReadonlyArray<A>, later: ReadonlyArray<A>): ReadonlyArray<A> => [
  ...new Set([...earlier, ...later])
]

/** Adds patterns, so that no blueprint loses one of its mixins. The rest is replaced. */
const mergeFiles = (earlier: FileRules, later: FileRules): FileRules => {
  const deny = append(earlier.deny ?? [], later.deny ?? [])
  const read_only = append(earlier.read_only ?? [], later.read_only ?? [])
  const { deny: _, read_only: __, ...others } = { ...earlier, ...later }
  return {
    ...(deny.length === 0 ? {} : { deny }),
    ...(read_only.length === 0 ? {} : { read_only }),
    ...others
  }
}

/** Adds patterns. `keep` and `target` are replaced as a whole. */
const mergeBackup = (earlier: BackupRule, later: BackupRule): BackupRule => {
  const exclude = append(earlier.exclude ?? [], later.exclude ?? [])
  return { ...earlier, ...later, ...(exclude.length === 0 ? {} : { exclude }) }
}

/** The later schedule of a name replaces the earlier one. */
const mergeSchedules = (
  earlier: ReadonlyArray<BlueprintSchedule>,
  later: ReadonlyArray<BlueprintSchedule>
): ReadonlyArray<BlueprintSchedule> => {
  const names = new Set(later.map(({ name }) => name))
  return [...earlier.filter(({ name }) => !names.has(name)), ...later]
}

/** `/world` and `world` are the same place. */
const identity = (volume: Volume): string => `${volume.name}:${volume.target.replace(/^\//, "")}`

const mergeVolumes = (
  earlier: ReadonlyArray<Written<Volume>>,
  later: ReadonlyArray<Written<Volume>>
): ReadonlyArray<Written<Volume>> => {
  const volumes = new Map(earlier.map((volume) => [identity(volume.value), volume]))
  for (const volume of later) volumes.set(identity(volume.value), volume)
  return [...volumes.values()]
}

/** A mixin with its parents merged into it, and the position at which the blueprint names it. */
export interface Included {
  readonly at: Position
  readonly parts: Composable
}

/** Conflicts per blueprint; more would only cost memory. */
const MAX_CONFLICTS = 50

const none: StatePart = { volumes: [], mounts: [], copy: [], env: {}, env_allow: [] }

const entriesOf = ({ copy, mounts, volumes }: StatePart) => [...volumes, ...mounts, ...copy]

const planOf = (state: StatePart) => {
  const value = <A>({ value }: { readonly value: A }): A => value
  return planFiles({
    volumes: state.volumes.map(value),
    mounts: state.mounts.map(value),
    copy: state.copy.map(value)
  })
}

/** Returns the problems of a blueprint; a part of a mixin is reported at the include. */
const conflictsOf = (
  file: BlueprintFile,
  included: ReadonlyArray<Included>,
  parts: Composable
): ReadonlyArray<Problem> => {
  const state = parts.state ?? none
  const entries = entriesOf(state)
  if (entries.length === 0) return []
  const { conflicts, plan } = planOf(state)
  const configs = parts.server.configs ?? {}
  const patches = patchConflicts(plan, Object.keys(configs))
  if (conflicts.length + patches.length === 0) return []

  const origins = new Map<unknown, Origin>(entries.map(({ at, value }) => [value, at]))
  /** Returns the include that brings a part; of several, the last. */
  const includeOf = (origin: Origin): Position =>
    included.findLast(({ parts: { server, state } }) =>
      [...entriesOf(state ?? none), ...Object.values(server.configs ?? {})].some(({ at }) => at === origin)
    )?.at ?? file.at
  const problemOf = (origin: Origin | undefined, other: Origin | undefined, reason: string): Problem => {
    const { column, line } =
      origin === undefined ? file.at : origin.file === file.file ? origin : includeOf(origin)
    const elsewhere = [origin, other].flatMap((one) =>
      one === undefined || (one.file === file.file && one.line === line)
        ? []
        : [`${printable(one.file, 80)}:${one.line}`]
    )
    const places = elsewhere.length === 0 ? "" : ` (${elsewhere.join(", ")})`
    return { file: file.file, line, column, reason: reason + places }
  }
  const found = [
    ...conflicts.map(({ entry, other, reason }) => ({ origin: origins.get(entry), other, reason })),
    ...patches.map(({ file: name, other, reason }) => ({ origin: configs[name]?.at, other, reason }))
  ]
  return found
    .slice(0, MAX_CONFLICTS)
    .map(({ origin, other, reason }) => problemOf(origin, origins.get(other), reason))
}

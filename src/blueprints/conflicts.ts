/** Finds parts of a blueprint and its mixins that exclude each other in one instance (domain/filePlan.ts). No I/O. */
import { patchConflicts, planFiles } from "../domain/filePlan.ts"
import type { BlueprintFile, Composable, StatePart } from "./parse/files.ts"
import { type Origin, type Position, type Problem, printable } from "./parse/problem.ts"

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

/**
 * Returns the problems of the blueprint's file. A part of a mixin is reported at the include, and a part of the
 * blueprint at its own position: each file may be valid by itself.
 *
 * @param parts the blueprint with its mixins
 */
export const conflictsOf = (
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

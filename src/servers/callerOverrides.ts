/** The overrides that a limited key may give (operators.md, "Keys"; docs/keys.md). */
import { Effect, Option, Result } from "effect"
import { CurrentPrincipal } from "../api/Principal.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { instancePath } from "../blueprints/parse/paths.ts"
import { Forbidden } from "../domain/errors.ts"
import type { Limits } from "../domain/Limits.ts"
import type { OverridesChange } from "../domain/Overrides.ts"
import type { ServerDefinition } from "../domain/ServerDefinition.ts"
import { overQuota } from "./records/callerLimits.ts"

interface Checked {
  readonly right: "create" | "change"
  readonly blueprint_id: string
  /** The overrides of the request. */
  readonly given: OverridesChange
  /** The definition that results. */
  readonly next: ServerDefinition
}

const quoted = (name: string): string => JSON.stringify(name.slice(0, 80))

/** Returns the fields of a request that change which code runs; `own`: of the blueprint without them, if it resolves. */
const codeFields = (
  given: OverridesChange,
  next: ServerDefinition,
  own: ServerDefinition | undefined
): ReadonlyArray<string> => {
  const { configs, image, software } = given
  const files = Object.entries(configs ?? {}).flatMap(([name, config]) => {
    const file = Result.getOrElse(instancePath(name), () => name)
    const isOwn = own !== undefined && Object.hasOwn(own.configs, file)
    return config === null || isOwn ? [] : [`overrides.configs[${quoted(name)}]`]
  })
  return [
    ...(typeof software === "string" && software !== own?.software ? ["overrides.software"] : []),
    ...(typeof image === "string" && next.image !== own?.image ? ["overrides.image"] : []),
    ...files.slice(0, 3)
  ]
}

const swapOf = ({ swap = 0 }: Limits): number => (swap < 0 ? Number.POSITIVE_INFINITY : swap)

/** Returns the fields of a request that allow more memory than the memory limit counts. */
const memoryFields = ({ limits }: OverridesChange, own: Limits): ReadonlyArray<string> => [
  ...(typeof limits?.swap === "number" && swapOf({ swap: limits.swap }) > swapOf(own) ? ["limits.swap"] : []),
  ...(limits?.oom_disabled === true && own.oom_disabled !== true ? ["limits.oom_disabled"] : [])
]

/**
 * Returns a check of overrides. A key that is limited to blueprints runs their code only: it chooses the version, but no
 * other software, image or config files. A key with a memory quota gets no memory that the quota does not count.
 */
export const makeOverridesCheck = Effect.map(BlueprintStore, ({ resolve }) => {
  const checkLimited = Effect.fnUntraced(function* (
    { blueprint_id, given, next, right }: Checked,
    isLimited: boolean,
    max_memory: number | undefined
  ) {
    const own = Option.getOrUndefined(
      yield* Effect.option(resolve(blueprint_id, { version: next.version })).pipe(
        Effect.filterOrElse(Option.isSome, () => Effect.option(resolve(blueprint_id, {})))
      )
    )
    const code = isLimited ? codeFields(given, next, own) : []
    if (code.length > 0) {
      return yield* new Forbidden({
        detail: `the API key lacks: ${right}: it is limited to blueprints, and ${code.join(", ")} would run other code than blueprint ${blueprint_id}`,
        hint: "Leave the field out, or use a key that is not limited to blueprints."
      })
    }
    const memory = max_memory === undefined ? [] : memoryFields(given, own?.limits ?? {})
    if (memory.length > 0) {
      return yield* overQuota(
        `at most ${max_memory} MiB of memory (max_memory), which do not count what ${memory.join(" and ")} would allow beyond blueprint ${blueprint_id}`
      )
    }
  })

  return (checked: Checked) =>
    Effect.flatMap(CurrentPrincipal, (caller) => {
      const isLimited = caller?.restriction?.blueprints !== undefined
      const max_memory = caller?.quota?.max_memory
      return isLimited || max_memory !== undefined
        ? checkLimited(checked, isLimited, max_memory)
        : Effect.void
    })
})

import { Schema, Struct } from "effect"
import { ParserName } from "./ConfigPatch.ts"
import { MOST_VARIABLES } from "./environment.ts"
import { DefinitionId } from "./Id.ts"
import { limitFields, MemoryLimitInput } from "./Limits.ts"
import { optionalInput, optionalInputs } from "./optionalInput.ts"
import { RunPriority, RunRule, restartFields } from "./RunRule.ts"
import { StopTimeout } from "./Software.ts"
import { nullOr } from "./units.ts"

export const EnvName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/u, { expected: "the name of an environment variable" })
)
/** Value of an environment variable: anything but NUL. */
export const EnvValue = Schema.String.check(
  Schema.isPattern(/^[^\0]*$/u, { expected: "a value without NUL" }),
  Schema.isMaxLength(32_768)
)

/** Limits as overrides: each field replaces the blueprint's. */
export const LimitOverrides = Schema.Struct(optionalInputs(limitFields))

/** The rule of restarts after crashes as overrides: each field replaces the blueprint's. */
export const RestartOverrides = Schema.Struct(optionalInputs(restartFields)).annotate({
  identifier: "OverridesRestart"
})

const LimitsInput = Schema.Struct({
  ...LimitOverrides.fields,
  memory_limit: optionalInput(MemoryLimitInput)
}).annotate({ identifier: "OverridesLimits" })

const DEEPEST_VALUE = 32

/**
 * Returns the number of values at every depth, unless they nest deeper than {@link DEEPEST_VALUE}. Does not recurse.
 */
export const countValues = (value: unknown): number | undefined => {
  let level: ReadonlyArray<unknown> = [value]
  let count = 0
  for (let depth = 0; depth <= DEEPEST_VALUE; depth++) {
    level = level.flatMap((item) => (typeof item === "object" && item !== null ? Object.values(item) : []))
    if (level.length === 0) return count
    count += level.length
  }
  return undefined
}

/** The override of a config file; without `parser`, the parser of the blueprint or software stays. */
export const ConfigOverride = Schema.Struct({
  parser: optionalInput(ParserName),
  find: Schema.Record(Schema.String, Schema.Json).check(
    Schema.makeFilter((find) => countValues(find) !== undefined, {
      expected: `values nested at most ${DEEPEST_VALUE} deep`
    })
  )
})

export const VersionText = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/u, { expected: "a version such as 1.21.11" })
)

/** Reference of a container image; a `~` before it: the image is only on the node, and never pulled. */
export const ImageReference = Schema.String.check(
  Schema.isPattern(/^~?[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$/u, { expected: "an image reference" })
)

/** Returns a text that can only be an image reference: a mistyped key has none of its signs. */
export const referenceOf = (text: string): string | undefined =>
  /[/:@~]/.test(text) && Schema.is(ImageReference)(text) ? text : undefined

/** Key of a software's images, such as `java_21` or `Java 21`. */
export const ImageKey = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9](?:[\w .,:()+/@-]{0,126}[\w.,:()+/@-])?$/u, {
    expected: "a name such as java_21"
  })
)

/** Reference of a container image, or a key of the software's images. */
export const ImageText = Schema.String.check(
  Schema.isPattern(
    /^(?:~?[A-Za-z0-9][\w./:@-]{0,511}|[A-Za-z0-9](?:[\w .,:()+/@-]{0,126}[\w.,:()+/@-])?)$/u,
    {
      expected: "an image reference or key"
    }
  )
)

/** A value of a change; null removes the override. */
const changed = <S extends Schema.Constraint>(schema: S) => Schema.optionalKey(nullOr(schema))

interface Changed extends Struct.Lambda {
  <S extends Schema.Constraint>(schema: S): ReturnType<typeof changed<S>>
  readonly "~lambda.out": this["~lambda.in"] extends Schema.Constraint
    ? ReturnType<typeof changed<this["~lambda.in"]>>
    : never
}

const changeOf = Struct.map(Struct.lambda<Changed>(changed))

const MOST_FILES = 256
const MOST_VALUES = 4096

type Configs = Readonly<Record<string, { readonly find?: unknown } | null>>

const sizeOf = (configs: Configs) => ({
  files: Object.keys(configs).length,
  values: Object.values(configs).reduce((sum, config) => sum + (countValues(config?.find) ?? 0), 0)
})

/** Returns the bound that config overrides exceed; undefined: none. */
export const configBound = (configs: Configs): string | undefined => {
  const { files, values } = sizeOf(configs)
  if (files > MOST_FILES) return `at most ${MOST_FILES} files`
  if (values > MOST_VALUES) return `at most ${MOST_VALUES} values in all files`
  return undefined
}

const boundedConfigs = Schema.makeFilter((configs: Configs) => {
  const bound = configBound(configs)
  return bound === undefined || `Expected ${bound}`
})

const boundedEnv = Schema.makeFilter(
  (env: Readonly<Record<string, unknown>>) => Object.keys(env).length <= MOST_VARIABLES,
  { expected: `at most ${MOST_VARIABLES} variables` }
)

const MOST_LEFT_OUT = 100
const LONGEST_LEFT_OUT = 64

/** Schedules of the blueprint that do not hold for the server, by their names (spec 13.7). */
const LeftOut = Schema.Record(Schema.String, Schema.Null).check(
  Schema.makeFilter(
    (given) => {
      const names = Object.keys(given)
      return names.length <= MOST_LEFT_OUT && names.every(({ length }) => length <= LONGEST_LEFT_OUT)
    },
    { expected: `at most ${MOST_LEFT_OUT} names of at most ${LONGEST_LEFT_OUT} characters` }
  )
)

const overrideFields = {
  save: Schema.Boolean,
  limits: LimitOverrides,
  configs: Schema.Record(Schema.String, ConfigOverride),
  software: DefinitionId,
  version: VersionText,
  image: ImageText,
  stop_timeout: StopTimeout,
  restart: RestartOverrides,
  run: RunRule,
  priority: RunPriority,
  schedules: LeftOut,
  env: Schema.Record(EnvName, EnvValue)
} as const

/** Overrides of a server (spec 3.1). */
export const Overrides = Schema.Struct(optionalInputs(overrideFields)).annotate({
  identifier: "StoredOverrides"
})
export type Overrides = typeof Overrides.Type

/** Overrides in the body of a creation (spec 3.3): at most 256 files, 4,096 values in them and 256 variables. */
export const OverridesInput = Schema.Struct(
  optionalInputs({
    ...overrideFields,
    limits: LimitsInput,
    configs: overrideFields.configs.check(boundedConfigs),
    env: overrideFields.env.check(boundedEnv)
  })
).annotate({ identifier: "Overrides" })

const ConfigChange = Schema.Struct(changeOf({ parser: ParserName, find: ConfigOverride.fields.find }))

/** A change of overrides: merged by field, config key and variable; null removes (spec 3.12). `schedules` is replaced. */
export const OverridesChange = Schema.Struct(
  changeOf({
    ...overrideFields,
    limits: Schema.Struct(changeOf({ ...limitFields, memory_limit: MemoryLimitInput })),
    configs: Schema.Record(Schema.String, Schema.NullOr(ConfigChange)).check(boundedConfigs),
    restart: Schema.Struct(changeOf(restartFields)),
    env: Schema.Record(EnvName, Schema.NullOr(EnvValue)).check(boundedEnv)
  })
).annotate({ identifier: "OverridesChange" })
export type OverridesChange = typeof OverridesChange.Type

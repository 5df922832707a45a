import { Schema } from "effect"
import { ParserName } from "./ConfigPatch.ts"
import { DefinitionId } from "./Id.ts"
import { limitFields } from "./Limits.ts"
import { optionalInput } from "./optionalInput.ts"
import { StopTimeout } from "./Software.ts"

/** Name of an environment variable. */
export const EnvName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/u, { expected: "the name of an environment variable" })
)
/** Value of an environment variable: anything but NUL. */
export const EnvValue = Schema.String.check(
  Schema.isPattern(/^[^\0]*$/u, { expected: "a value without NUL" }),
  Schema.isMaxLength(32_768)
)

/** Limits as overrides: each field replaces the blueprint's. */
export const LimitOverrides = Schema.Struct({
  memory_limit: optionalInput(limitFields.memory_limit),
  swap: optionalInput(limitFields.swap),
  io_weight: optionalInput(limitFields.io_weight),
  cpu_limit: optionalInput(limitFields.cpu_limit),
  disk_space: optionalInput(limitFields.disk_space),
  threads: optionalInput(limitFields.threads),
  oom_disabled: optionalInput(limitFields.oom_disabled)
})

const DEEPEST_VALUE = 32

/** Whether arrays and objects are nested at most {@link DEEPEST_VALUE} deep; does not recurse itself. */
const isShallow = (value: unknown): boolean => {
  let level: ReadonlyArray<unknown> = [value]
  for (let depth = 0; depth <= DEEPEST_VALUE; depth++) {
    level = level.flatMap((item) => (typeof item === "object" && item !== null ? Object.values(item) : []))
    if (level.length === 0) return true
  }
  return false
}

/** The override of a config file; without `parser`, the parser of the blueprint or software stays. */
export const ConfigOverride = Schema.Struct({
  parser: optionalInput(ParserName),
  find: Schema.Record(Schema.String, Schema.Json).check(
    Schema.makeFilter(isShallow, { expected: `values nested at most ${DEEPEST_VALUE} deep` })
  )
})

/** Version of a software: anything printable on one line. */
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
const changed = <S extends Schema.Constraint>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))

/** Overrides at creation (contract 2.3 and 4.5; decisions, section 3). */
export const Overrides = Schema.Struct({
  save: optionalInput(Schema.Boolean),
  limits: optionalInput(LimitOverrides),
  configs: optionalInput(Schema.Record(Schema.String, ConfigOverride)),
  software: optionalInput(DefinitionId),
  version: optionalInput(VersionText),
  image: optionalInput(ImageText),
  stop_timeout: optionalInput(StopTimeout),
  env: optionalInput(Schema.Record(EnvName, EnvValue))
}).annotate({ identifier: "Overrides" })
export type Overrides = typeof Overrides.Type

const ConfigChange = Schema.Struct({
  parser: changed(ParserName),
  find: changed(ConfigOverride.fields.find)
})

/** A change of overrides: merged by field, config key and variable; null removes (life.md, "Changing"). */
export const OverridesChange = Schema.Struct({
  save: changed(Schema.Boolean),
  limits: changed(
    Schema.Struct({
      memory_limit: changed(limitFields.memory_limit),
      swap: changed(limitFields.swap),
      io_weight: changed(limitFields.io_weight),
      cpu_limit: changed(limitFields.cpu_limit),
      disk_space: changed(limitFields.disk_space),
      threads: changed(limitFields.threads),
      oom_disabled: changed(limitFields.oom_disabled)
    })
  ),
  configs: changed(Schema.Record(Schema.String, Schema.NullOr(ConfigChange))),
  software: changed(DefinitionId),
  version: changed(VersionText),
  image: changed(ImageText),
  stop_timeout: changed(StopTimeout),
  env: changed(Schema.Record(EnvName, Schema.NullOr(EnvValue)))
}).annotate({ identifier: "OverridesChange" })
export type OverridesChange = typeof OverridesChange.Type

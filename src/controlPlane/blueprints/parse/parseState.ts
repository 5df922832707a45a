/** `state:` of blueprints and mixins, shorthands expanded (spec 4.2). */
import { Result, Schema } from "effect"
import { type BlueprintState, Mount, Volume } from "../../../contract/domain/Blueprint.ts"
import {
  isOfDaemon,
  ofDaemon,
  tooMuch,
  VariableName,
  VariablePattern,
  VariableValue
} from "../../../contract/domain/environment.ts"
import {
  type Decoder,
  describe,
  list,
  looseText,
  type Mapping,
  mapping,
  record,
  refined,
  required,
  text,
  withDefault,
  word,
  written
} from "./decode.ts"
import { type Located, printable } from "./located.ts"
import { keyOf } from "./parseServer.ts"
import { copySourcePath, copyTarget, hostPath, instancePath, mountTarget, targetPath } from "./paths.ts"

const VolumeName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, { expected: "a volume name such as world_1" })
)

const path = (check: (path: string) => Result.Result<string, string>) =>
  refined(text(Schema.String, "a path"), check)

/** Expands `a:b:c`, unless the number of parts is wrong. */
const expand = (
  { at, value: text }: { readonly at: number; readonly value: string },
  keys: ReadonlyArray<string>,
  least: number
): Located | undefined => {
  const parts = text.split(":")
  if (parts.length < least || parts.length > keys.length) return undefined
  const entries = parts.flatMap((part, index) => {
    const key = keys[index]
    const value: Located = { kind: "scalar", at, size: 1, depth: 1, value: part, source: part }
    return key === undefined ? [] : [{ key, at, node: value }]
  })
  return { kind: "map", at, size: 1, depth: 2, entries }
}

/** Decodes a list of mappings. `form` is their one-line form: their keys, the last of them optional in brackets. */
const listOf = <A>(form: string, decode: Mapping<A>) => {
  const { keys } = decode.shape
  const least = form.includes("[") ? keys.length - 1 : keys.length
  const entry: Decoder<A> = (node, reading) => {
    if (node.kind === "map") return decode(node, reading)
    const { at, kind } = node
    const expanded =
      kind === "scalar" && typeof node.value === "string"
        ? expand({ at, value: node.value }, keys, least)
        : undefined
    if (expanded !== undefined) return decode(expanded, reading)
    reading.problem(at, `expected ${form} or a mapping with ${keys.join(", ")}, found ${describe(node)}`)
    return undefined
  }
  return withDefault(list(written(entry), form), [])
}

export const volume = mapping("state.volumes.", {
  name: required(text(VolumeName)),
  source: required(path(instancePath)),
  target: required(path(targetPath)),
  mode: withDefault(word(Volume.fields.mode.literals), "cow")
})

export const mount = mapping("state.mounts.", {
  source: required(path(hostPath)),
  target: required(path(mountTarget)),
  mode: withDefault(word(Mount.fields.mode.literals), "rw")
})

export const copy = mapping("state.copy.", {
  source: required(path(copySourcePath)),
  target: required(path(copyTarget)),
  when: word(["create", "start"])
})

/** A value of the environment: bare numbers, `true` and `false` count as their spelling, null removes the variable. */
const variable: Decoder<string | null> = (node, reading) =>
  node.kind === "scalar" && node.value === null ? null : looseText(VariableValue)(node, reading)

const variables = record(variable, (key) =>
  isOfDaemon(key)
    ? Result.fail(`\`${printable(key, 80)}\`: ${ofDaemon}`)
    : keyOf(VariableName, "the name of an environment variable of at most 128 characters")(key)
)

/** Returns the variables of `state.env` without those that a file removes. */
export const variablesOf = (env: Readonly<Record<string, string | null>>): BlueprintState["env"] =>
  Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === null ? [] : [[name, value] as const]))
  )

const env = refined(variables, (found) => {
  const much = tooMuch(variablesOf(found))
  return much === undefined ? Result.succeed(found) : Result.fail(much)
})

const allowed = refined(text(VariablePattern), (pattern) =>
  isOfDaemon(pattern) ? Result.fail(`\`${printable(pattern, 80)}\`: ${ofDaemon}`) : Result.succeed(pattern)
)

export const statePart = mapping(
  "state.",
  {
    volumes: listOf("`name:source:target[:mode]`", volume),
    mounts: listOf("`source:target[:mode]`", mount),
    copy: listOf("`source:target[:when]`", copy),
    env: withDefault(env, {}),
    "env-allow": withDefault(list(allowed, "names of variables"), [])
  },
  ["hooks"]
)
export type StatePart = NonNullable<ReturnType<typeof statePart>>

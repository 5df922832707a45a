/** `state:` of blueprints and mixins, shorthands expanded (spec 4.2). */
import { Result, Schema } from "effect"
import { type Copy, Mount, Volume } from "../../../contract/domain/Blueprint.ts"
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
  defined,
  describe,
  fieldsOf,
  list,
  looseText,
  record,
  text,
  word,
  written
} from "./decode.ts"
import { shapes } from "./fields.ts"
import { type StatePart, variablesOf } from "./files.ts"
import type { Located } from "./located.ts"
import { keyOf } from "./parseServer.ts"
import { copySourcePath, copyTarget, hostPath, instancePath, mountTarget, targetPath } from "./paths.ts"
import { printable } from "./problem.ts"

const VolumeName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, { expected: "a volume name such as world_1" })
)

const path =
  (check: (path: string) => Result.Result<string, string>): Decoder<string> =>
  (node, reading) => {
    const value = text(Schema.String, "a path")(node, reading)
    if (value === undefined) return undefined
    const checked = check(value)
    if (Result.isSuccess(checked)) return checked.success
    reading.problem(node.at, checked.failure)
    return undefined
  }

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

/** The one-line form of each list entry: the keys of its mapping, the last of them optional in brackets. */
const forms = {
  volume: "`name:source:target[:mode]`",
  mount: "`source:target[:mode]`",
  copy: "`source:target[:when]`"
}

const shorthand =
  <A>(form: string, keys: ReadonlyArray<string>, decode: Decoder<A>): Decoder<A> =>
  (node, reading) => {
    if (node.kind === "map") return decode(node, reading)
    const least = form.includes("[") ? keys.length - 1 : keys.length
    const { at, kind } = node
    const expanded =
      kind === "scalar" && typeof node.value === "string"
        ? expand({ at, value: node.value }, keys, least)
        : undefined
    if (expanded !== undefined) return decode(expanded, reading)
    reading.problem(at, `expected ${form} or a mapping with ${keys.join(", ")}, found ${describe(node)}`)
    return undefined
  }

const volume = shorthand<Volume>(forms.volume, shapes.volume.keys, (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.volume)
  const name = fields?.required("name", text(VolumeName))
  const source = fields?.required("source", path(instancePath))
  const target = fields?.required("target", path(targetPath))
  const mode = fields?.optional("mode", word(Volume.fields.mode.literals)) ?? "cow"
  return name === undefined || source === undefined || target === undefined
    ? undefined
    : { name, source, target, mode }
})

const mount = shorthand<Mount>(forms.mount, shapes.mount.keys, (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.mount)
  const source = fields?.required("source", path(hostPath))
  const target = fields?.required("target", path(mountTarget))
  const mode = fields?.optional("mode", word(Mount.fields.mode.literals)) ?? "rw"
  return source === undefined || target === undefined ? undefined : { source, target, mode }
})

const copy = shorthand<Copy>(forms.copy, shapes.copy.keys, (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.copy)
  const source = fields?.required("source", path(copySourcePath))
  const target = fields?.required("target", path(copyTarget))
  const when = fields?.optional("when", word(["create", "start"]))
  return source === undefined || target === undefined ? undefined : { source, target, ...defined({ when }) }
})

/** A value of the environment: bare numbers, `true` and `false` count as their spelling, null removes the variable. */
const variable: Decoder<string | null> = (node, reading) =>
  node.kind === "scalar" && node.value === null ? null : looseText(VariableValue)(node, reading)

const variables = record(variable, (key) =>
  isOfDaemon(key)
    ? Result.fail(`\`${printable(key, 80)}\`: ${ofDaemon}`)
    : keyOf(VariableName, "the name of an environment variable of at most 128 characters")(key)
)

const env: Decoder<StatePart["env"]> = (node, reading) => {
  const found = variables(node, reading)
  const much = found === undefined ? undefined : tooMuch(variablesOf(found))
  if (much !== undefined) reading.problem(node.at, much)
  return found
}

const allowed: Decoder<string> = (node, reading) => {
  const pattern = text(VariablePattern)(node, reading)
  if (pattern === undefined || !isOfDaemon(pattern)) return pattern
  reading.problem(node.at, `\`${printable(pattern, 80)}\`: ${ofDaemon}`)
  return undefined
}

export const statePart: Decoder<StatePart> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.state)
  if (fields === undefined) return undefined
  return {
    volumes: fields.optional("volumes", list(written(volume), forms.volume)) ?? [],
    mounts: fields.optional("mounts", list(written(mount), forms.mount)) ?? [],
    copy: fields.optional("copy", list(written(copy), forms.copy)) ?? [],
    env: fields.optional("env", env) ?? {},
    env_allow: fields.optional("env-allow", list(allowed, "names of variables")) ?? []
  }
}

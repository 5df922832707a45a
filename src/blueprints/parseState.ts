/** `state:` of blueprints and mixins, shorthands expanded (blueprints.md, "Blueprint"). */
import { Result, Schema } from "effect"
import { type Copy, Mount, Volume } from "../domain/Blueprint.ts"
import { EnvName, EnvValue } from "../domain/Overrides.ts"
import { type Decoder, fieldsOf, list, looseText, record, text, word, written } from "./decode.ts"
import { shapes } from "./fields.ts"
import type { StatePart } from "./files.ts"
import type { Located } from "./located.ts"
import { keyOf } from "./parseServer.ts"
import { hostPath, instancePath, targetPath } from "./paths.ts"

const VolumeName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, { expected: "a volume name such as world_1" })
)

/** A path that `check` accepts, in its shortest form. */
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

/** Turns `a:b:c` into the mapping that it is short for; other values stay as they are. */
const expand = (node: Located, keys: ReadonlyArray<string>): Located => {
  if (node.kind !== "scalar" || typeof node.value !== "string") return node
  const parts = node.value.split(":")
  if (parts.length > keys.length) return node
  const { at } = node
  const entries = parts.flatMap((part, index) => {
    const key = keys[index]
    const value: Located = { kind: "scalar", at, size: 1, depth: 1, value: part, source: part }
    return key === undefined ? [] : [{ key, at, node: value }]
  })
  return { kind: "map", at, size: 1, depth: 2, entries }
}

/** A mapping, or the text that is short for it. */
const shorthand =
  <A>(form: string, keys: ReadonlyArray<string>, decode: Decoder<A>): Decoder<A> =>
  (node, reading) => {
    const expanded = expand(node, keys)
    if (expanded.kind === "map") return decode(expanded, reading)
    reading.problem(node.at, `expected \`${form}\` or a mapping with ${keys.join(", ")}`)
    return undefined
  }

const volume = shorthand<Volume>("name:source:target[:mode]", shapes.volume.keys, (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.volume)
  const name = fields?.required("name", text(VolumeName))
  const source = fields?.required("source", path(instancePath))
  const target = fields?.required("target", path(targetPath))
  const mode = fields?.optional("mode", word(Volume.fields.mode.literals)) ?? "cow"
  return name === undefined || source === undefined || target === undefined
    ? undefined
    : { name, source, target, mode }
})

const mount = shorthand<Mount>("source:target[:mode]", shapes.mount.keys, (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.mount)
  const source = fields?.required("source", path(hostPath))
  const target = fields?.required("target", path(targetPath))
  const mode = fields?.optional("mode", word(Mount.fields.mode.literals)) ?? "rw"
  return source === undefined || target === undefined ? undefined : { source, target, mode }
})

const copy = shorthand<Copy>("source:target", shapes.copy.keys, (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.copy)
  const source = fields?.required("source", path(instancePath))
  const target = fields?.required("target", path(instancePath))
  return source === undefined || target === undefined ? undefined : { source, target }
})

/** Environment: bare numbers, `true` and `false` count as what is written. */
export const env = record(looseText(EnvValue), keyOf(EnvName, "the name of an environment variable"))

export const statePart: Decoder<StatePart> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.state)
  if (fields === undefined) return undefined
  return {
    volumes: fields.optional("volumes", list(written(volume))) ?? [],
    mounts: fields.optional("mounts", list(written(mount))) ?? [],
    copy: fields.optional("copy", list(written(copy))) ?? [],
    env: fields.optional("env", env) ?? {}
  }
}

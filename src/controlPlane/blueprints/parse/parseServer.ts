/** `server:` of blueprints and mixins, and the parts that software shares with it (spec 4.2). */
import { Result, Schema } from "effect"
import { PortName } from "../../../contract/domain/Allocation.ts"
import { restartFields } from "../../../contract/domain/Blueprint.ts"
import {
  ConfigParser,
  type ConfigPatch,
  type ConfigPatches,
  parserOf
} from "../../../contract/domain/ConfigPatch.ts"
import { DefinitionId } from "../../../contract/domain/Id.ts"
import { type Limits, limitFields } from "../../../contract/domain/Limits.ts"
import { ImageText, VersionText } from "../../../contract/domain/Overrides.ts"
import { RunPriority, RunRule } from "../../../contract/domain/Run.ts"
import { StopTimeout } from "../../../contract/domain/Software.ts"
import {
  boolean,
  type Decoder,
  defined,
  expected,
  fieldsOf,
  json,
  list,
  number,
  type Reading,
  record,
  text,
  word
} from "./decode.ts"
import { shapes } from "./fields.ts"
import type { ServerPart } from "./files.ts"
import type { Located } from "./located.ts"
import { instancePath } from "./paths.ts"

export const Line = Schema.String.check(
  Schema.isPattern(/^[^\p{Cc}]{1,256}$/u, { expected: "one line of at most 256 characters" })
)

const MOST_PORTS = 16

const PortCount = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MOST_PORTS }))

const portNames: Decoder<ReadonlyArray<string>> = (node, reading) => {
  const names = new Set<string>()
  const name = text(PortName, "the name of a port")
  list((item) => {
    const read = name(item, reading)
    if (read !== undefined && names.has(read)) reading.problem(item.at, `the port \`${read}\` is there twice`)
    else if (read !== undefined) names.add(read)
    return read
  })(node, reading)
  if (node.kind === "list" && (node.items.length === 0 || node.items.length > MOST_PORTS)) {
    reading.problem(node.at, `expected 1 to ${MOST_PORTS} names of ports, found ${node.items.length}`)
  }
  return [...names]
}

const ports: Decoder<NonNullable<ServerPart["ports"]>> = (node, reading) => {
  if (node.kind === "list") return portNames(node, reading)
  return node.kind === "scalar" && !(typeof node.value === "number" && node.value >= 1024)
    ? number(PortCount)(node, reading)
    : expected(
        node,
        reading,
        `1 to ${MOST_PORTS} ports, or a list of their names`,
        "; the node chooses the numbers"
      )
}

export const definitionId = text(DefinitionId, "an id")

/** Decodes the id of a software, in any case: ids are lower-case. */
const softwareId: Decoder<string> = (node, reading) =>
  definitionId(
    node.kind === "scalar" && typeof node.value === "string"
      ? { ...node, value: node.value.toLowerCase() }
      : node,
    reading
  )

export const limits: Decoder<Limits> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.limits)
  if (fields === undefined) return undefined
  return defined({
    memory_limit: fields.optional("memory_limit", number(limitFields.memory_limit)),
    swap: fields.optional("swap", number(limitFields.swap)),
    io_weight: fields.optional("io_weight", number(limitFields.io_weight)),
    cpu_limit: fields.optional("cpu_limit", number(limitFields.cpu_limit)),
    disk_space: fields.optional("disk_space", number(limitFields.disk_space)),
    threads: fields.optional("threads", text(limitFields.threads)),
    oom_disabled: fields.optional("oom_disabled", boolean)
  })
}

const parser: Decoder<ConfigParser> = (node, reading) =>
  node.kind === "scalar" && node.source === "yml"
    ? parserOf(node.source)
    : word(ConfigParser.literals)(node, reading)

const configPatch: Decoder<ConfigPatch> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.config)
  if (fields === undefined) return undefined
  const named = fields.required("parser", parser)
  const find = fields.optional("find", record(json)) ?? {}
  return named === undefined ? undefined : { parser: named, find }
}

/** Patches by file; file names become their shortest form. */
export const configs: Decoder<ConfigPatches> = record(configPatch, instancePath)

/** The same, each with the position of its file name. */
const writtenConfigs: Decoder<NonNullable<ServerPart["configs"]>> = record(
  (node: Located, reading: Reading, at: number) => {
    const value = configPatch(node, reading)
    return value === undefined ? undefined : { value, at: reading.origin(at) }
  },
  instancePath
)

const placement: Decoder<NonNullable<ServerPart["placement"]>> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.placement)
  if (fields === undefined) return undefined
  return defined({
    locations: fields.optional("locations", list(text(Line))),
    anti_affinity: fields.optional("anti_affinity", boolean)
  })
}

const restart: Decoder<NonNullable<ServerPart["restart"]>> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.restart)
  if (fields === undefined) return undefined
  return defined({
    on_crash: fields.optional("on_crash", boolean),
    delay: fields.optional("delay", number(restartFields.delay)),
    max_delay: fields.optional("max_delay", number(restartFields.max_delay)),
    max_per_hour: fields.optional("max_per_hour", number(restartFields.max_per_hour)),
    reset_after: fields.optional("reset_after", number(restartFields.reset_after))
  })
}

export const serverPart: Decoder<ServerPart> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.server)
  if (fields === undefined) return undefined
  return defined({
    software: fields.optional("software", softwareId),
    version: fields.optional("version", text(VersionText)),
    image: fields.optional("image", text(ImageText)),
    limits: fields.optional("limits", limits),
    ports: fields.optional("ports", ports),
    stop_timeout: fields.optional("stop_timeout", number(StopTimeout)),
    configs: fields.optional("configs", writtenConfigs),
    placement: fields.optional("placement", placement),
    restart: fields.optional("restart", restart),
    run: fields.optional("run", word(RunRule.literals)),
    priority: fields.optional("priority", number(RunPriority))
  })
}

/** Decodes a key that `schema` allows, for {@link record}. */
export const keyOf =
  (schema: Schema.Codec<string>, what: string) =>
  (key: string): Result.Result<string, string> =>
    Result.isSuccess(Schema.decodeUnknownResult(schema)(key))
      ? Result.succeed(key)
      : Result.fail(`expected ${what} as the key`)

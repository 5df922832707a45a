/** `server:` of blueprints and mixins, and the parts that software shares with it (spec 4.2). */
import { Result, Schema } from "effect"
import { PortName } from "../../../contract/domain/Allocation.ts"
import { ConfigParser, type ConfigPatches, parserOf } from "../../../contract/domain/ConfigPatch.ts"
import { DefinitionId } from "../../../contract/domain/Id.ts"
import { limitFields } from "../../../contract/domain/Limits.ts"
import { ImageText, VersionText } from "../../../contract/domain/Overrides.ts"
import { RunPriority, RunRule, restartFields } from "../../../contract/domain/RunRule.ts"
import { StopTimeout } from "../../../contract/domain/Software.ts"
import {
  boolean,
  type Decoder,
  expected,
  json,
  list,
  mapping,
  number,
  record,
  required,
  respelled,
  text,
  type Written,
  withDefault,
  word
} from "./decode.ts"
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

/** The number of the ports, or their names. */
const ports: Decoder<number | ReadonlyArray<string>> = (node, reading) => {
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

export const limits = mapping("limits.", {
  memory_limit: number(limitFields.memory_limit),
  swap: number(limitFields.swap),
  io_weight: number(limitFields.io_weight),
  cpu_limit: number(limitFields.cpu_limit),
  disk_space: number(limitFields.disk_space),
  threads: text(limitFields.threads),
  oom_disabled: boolean
})

const parser: Decoder<ConfigParser> = (node, reading) =>
  node.kind === "scalar" && node.source === "yml"
    ? parserOf(node.source)
    : word(ConfigParser.literals)(node, reading)

export const config = mapping("configs.*.", {
  parser: required(parser),
  find: withDefault(record(json), {})
})

/** Patches by file; file names become their shortest form. */
export const configs: Decoder<ConfigPatches> = record(config, instancePath)

/** The same, each with the position of its file name. */
const writtenConfigs = record((node, reading, at): Written<ConfigPatches[string]> | undefined => {
  const value = config(node, reading)
  return value === undefined ? undefined : { value, at: reading.origin(at) }
}, instancePath)

export const placement = mapping("server.placement.", {
  locations: list(text(Line)),
  anti_affinity: boolean
})

export const restart = mapping("server.restart.", {
  on_crash: boolean,
  delay: number(restartFields.delay),
  max_delay: number(restartFields.max_delay),
  max_per_hour: number(restartFields.max_per_hour),
  reset_after: number(restartFields.reset_after)
})

export const serverPart = mapping(
  "server.",
  {
    software: respelled((id) => id.toLowerCase(), definitionId),
    version: text(VersionText),
    image: text(ImageText),
    limits,
    ports,
    stop_timeout: number(StopTimeout),
    configs: writtenConfigs,
    placement,
    restart,
    run: word(RunRule.literals),
    priority: number(RunPriority)
  },
  ["path", "allowed_clients"]
)
export type ServerPart = NonNullable<ReturnType<typeof serverPart>>

/** Decodes a key that `schema` allows, for {@link record}. */
export const keyOf =
  (schema: Schema.Codec<string>, what: string) =>
  (key: string): Result.Result<string, string> =>
    Result.isSuccess(Schema.decodeUnknownResult(schema)(key))
      ? Result.succeed(key)
      : Result.fail(`expected ${what} as the key`)

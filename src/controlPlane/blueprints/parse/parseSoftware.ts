/** Software files (spec 4.6). */
import { Result, Schema } from "effect"
import { signalPattern } from "../../../contract/domain/ConsoleLine.ts"
import { splitWords } from "../../../contract/domain/commandLine.ts"
import { RuntimeKind } from "../../../contract/domain/Node.ts"
import { ImageKey, ImageReference, referenceOf } from "../../../contract/domain/Overrides.ts"
import {
  CleanExit,
  DEFAULT_STOP_TIMEOUT,
  InstallScript,
  type Software,
  StopTimeout
} from "../../../contract/domain/Software.ts"
import { inUnit } from "../../../contract/domain/units.ts"
import {
  boolean,
  type Decoder,
  defined,
  type Fields,
  fieldsOf,
  list,
  number,
  type Reading,
  record,
  text,
  word
} from "./decode.ts"
import { shapes } from "./fields.ts"
import type { SoftwareFile } from "./files.ts"
import type { Located, LocatedMap } from "./located.ts"
import type { FileContext } from "./parseBlueprint.ts"
import { configs, definitionId, keyOf, Line, limits } from "./parseServer.ts"
import { printable } from "./problem.ts"
import { DEFAULT_RANGE, parseRange } from "./versions.ts"

const DAY = 86_400

const Seconds = Schema.Finite.check(
  Schema.isBetween({ minimum: 1, maximum: DAY }, inUnit("a number of seconds"))
)

const Retries = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100 }))

const Command = Schema.String.check(
  Schema.isPattern(/^[^\p{Cc}]{1,32768}$/u, { expected: "one line without control characters" })
)

const StopCommand = Command.check(
  Schema.isPattern(/^(?!\^)|^\^(?:C|SIG(?:INT|TERM|QUIT|HUP|KILL|USR1|USR2))$/, {
    expected: "a console line, or a signal such as ^C or ^SIGTERM"
  })
)

const Script = Schema.String.check(
  Schema.isPattern(/^[^\0]*$/, { expected: "a script without NUL" }),
  Schema.isMaxLength(262_144)
)

/** Text without the blanks at both ends, such as the line feed of a YAML block. */
const trimmed =
  (schema: Schema.Codec<string>): Decoder<string> =>
  (node, reading) =>
    text(schema)(
      node.kind === "scalar" && typeof node.value === "string" ? trim(node, node.value) : node,
      reading
    )

const trim = (node: Located, value: string): Located => ({
  kind: "scalar",
  at: node.at,
  size: 1,
  depth: 1,
  value: value.trim(),
  source: value.trim()
})

/** A command line that splits into words; a mistake would otherwise appear only at the start of a server. */
const invocation: Decoder<string> = (node, reading) => {
  const line = trimmed(Command)(node, reading)
  const split = line === undefined ? undefined : splitWords(line)
  if (split === undefined || "words" in split) return line
  reading.problem(node.at, `not a command line: ${split.invalid}`)
  return undefined
}

const onlineSignal: Decoder<string> = (node, reading) => {
  const signal = text(Command)(node, reading)
  if (signal === undefined || !signal.startsWith("regex:")) return signal
  const pattern = signal.slice("regex:".length)
  const compiled = Result.try({ try: () => signalPattern(pattern), catch: String })
  if (Result.isSuccess(compiled) && pattern !== "") return signal
  const reason = Result.isFailure(compiled)
    ? compiled.failure.replace(/^SyntaxError: /, "")
    : "the pattern is empty"
  reading.problem(node.at, `not a regular expression: ${printable(reason)}`)
  return undefined
}

/** `- java_21: ">=1.20.5"`, and `- default: java_21` or an image reference. */
const mappingsOf =
  (images: Readonly<Record<string, string>>): Decoder<Software["mappings"]> =>
  (node, reading) => {
    const lines = list((item) => {
      if (item.kind === "map") return mappingLines(item, images, reading)
      reading.problem(item.at, 'expected a mapping such as java_21: ">=1.20.5"')
      return undefined
    })(node, reading)
    const all = lines?.flat()
    if ((all ?? []).filter((line) => line.range === DEFAULT_RANGE).length > 1) {
      reading.problem(node.at, "`default` is there twice")
    }
    return all
  }

const mappingLines = (
  item: LocatedMap,
  images: Readonly<Record<string, string>>,
  reading: Reading
): Software["mappings"] =>
  item.entries.flatMap(({ at, key, node }) => {
    const value = text(Schema.String, "a version range")(node, reading)
    if (value === undefined) return []
    const [image, range, imageAt] = key === "default" ? [value, DEFAULT_RANGE, node.at] : [key, value, at]
    const keys = Object.keys(images).join(", ") || "none"
    const isReference = key === "default" && referenceOf(image) !== undefined
    if (!Object.hasOwn(images, image) && !isReference) {
      reading.problem(imageAt, `\`${printable(image, 80)}\` is not a key of \`images\` (${printable(keys)})`)
    }
    const parsed = range === DEFAULT_RANGE ? Result.succeed([]) : parseRange(range)
    if (Result.isFailure(parsed)) reading.problem(node.at, parsed.failure)
    return [{ image, range }]
  })

const policies = InstallScript.fields.warmup_failure_policy.literals

/** The policies of files for SLS: `continue` ignores a failed warm-up, `retry` fails after the retries. */
const policyOfSls = { continue: "ignore", retry: "fail" } as const

const warmupFailurePolicy: Decoder<(typeof policies)[number]> = (node, reading) => {
  const policy = word([...policies, "continue", "retry"])(node, reading)
  return policy === "continue" || policy === "retry" ? policyOfSls[policy] : policy
}

const installScript: Decoder<InstallScript> = (node, reading) => {
  const fields = fieldsOf(node, reading, shapes.installScript)
  if (fields === undefined) return undefined
  return {
    entrypoint: fields.optional("entrypoint", trimmed(Command)) ?? "sh",
    script: fields.required("script", text(Script)) ?? "",
    skip_scripts: fields.optional("skip_scripts", boolean) ?? false,
    timeout: fields.optional("timeout", number(Seconds)) ?? 1800,
    warmup: fields.optional("warmup", boolean) ?? false,
    warmup_timeout: fields.optional("warmup-timeout", number(Seconds)) ?? 600,
    warmup_retries: fields.optional("warmup-retries", number(Retries)) ?? 0,
    warmup_failure_policy: fields.optional("warmup-failure-policy", warmupFailurePolicy) ?? "fail",
    post_warmup_script: fields.optional("post-warmup-script", text(Script)) ?? "",
    post_warmup_timeout: fields.optional("post-warmup-timeout", number(Seconds)) ?? 120
  }
}

const processOf = (fields: Fields<(typeof shapes.software.keys)[number]>): Software["process"] => ({
  invocation: fields.required("invocation", invocation) ?? "",
  stop_command: fields.optional("stop-command", trimmed(StopCommand)) ?? "^SIGTERM",
  stop_timeout: fields.optional("stop-timeout", number(StopTimeout)) ?? DEFAULT_STOP_TIMEOUT,
  start_timeout: fields.optional("start-timeout", number(Seconds)) ?? 300,
  clean_exit: fields.optional("clean-exit", word(CleanExit.literals)) ?? "crash",
  terminal: fields.optional("terminal", boolean) ?? false,
  ...defined({ online_signal: fields.optional("online-signal", onlineSignal) })
})

const runtimeKinds: Decoder<Software["runtimes"]> = (node, reading) => {
  if (node.kind === "list" && node.items.length === 0) reading.problem(node.at, "`runtimes` is empty")
  return list(word(RuntimeKind.literals))(node, reading)
}

const standardRuntimes = (images: Software["images"]): Software["runtimes"] =>
  Object.keys(images).length > 0 ? ["docker"] : ["process"]

export const parseSoftware = (root: Located, context: FileContext): SoftwareFile | undefined => {
  const top = fieldsOf(root, context, shapes.softwareFile)
  const fields = top?.required("software", (node) => fieldsOf(node, context, shapes.software))
  if (fields === undefined) return undefined
  const id = fields.required("id", definitionId)
  const images = fields.optional("images", record(text(ImageReference), keyOf(ImageKey, "a name"))) ?? {}
  const runtimes = fields.optional("runtimes", runtimeKinds)
  const software: Software = {
    id: id ?? "",
    name: fields.optional("name", text(Line)) ?? id ?? "",
    images,
    mappings: fields.optional("mappings", mappingsOf(images)) ?? [],
    process: processOf(fields),
    install_script: fields.optional("install-script", installScript) ?? null,
    limits: fields.optional("limits", limits) ?? {},
    configs: fields.optional("configs", configs) ?? {},
    runtimes: runtimes === undefined ? standardRuntimes(images) : [...new Set(runtimes)]
  }
  const at = context.position(fields.place("id"))
  return { kind: "software", file: context.file, at, id: software.id, software }
}

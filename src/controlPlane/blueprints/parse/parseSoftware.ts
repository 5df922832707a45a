/** Software files (spec 4.6). */
import { Result, Schema } from "effect"
import { signalPattern } from "../../../contract/domain/ConsoleLine.ts"
import { splitWords } from "../../../contract/domain/commandLine.ts"
import { RuntimeKind } from "../../../contract/domain/Node.ts"
import { ImageKey, ImageReference, referenceOf } from "../../../contract/domain/Overrides.ts"
import {
  DEFAULT_QUIESCE_TIMEOUT,
  MOST_QUIESCE_LINES,
  QuiesceFailure,
  QuiesceLine,
  QuiesceTimeout
} from "../../../contract/domain/Quiesce.ts"
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
  list,
  mapping,
  number,
  type Reading,
  record,
  refined,
  required,
  respelled,
  text,
  type Written,
  withDefault,
  word,
  written
} from "./decode.ts"
import type { SoftwareFile } from "./files.ts"
import { type LocatedMap, printable } from "./located.ts"
import { positionOf } from "./parseBlueprint.ts"
import { configs, definitionId, keyOf, Line, limits } from "./parseServer.ts"
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
const trimmed = (schema: Schema.Codec<string>) => respelled((value) => value.trim(), text(schema))

/** A command line that splits into words; a mistake would otherwise appear only at the start of a server. */
const invocation = refined(trimmed(Command), (line) => {
  const split = splitWords(line)
  return "words" in split ? Result.succeed(line) : Result.fail(`not a command line: ${split.invalid}`)
})

/** Part of a line of output, or `regex:` and a pattern. */
const outputPattern = refined(text(Command), (signal) => {
  if (!signal.startsWith("regex:")) return Result.succeed(signal)
  const pattern = signal.slice("regex:".length)
  const compiled = Result.try({ try: () => signalPattern(pattern), catch: String })
  if (Result.isSuccess(compiled) && pattern !== "") return Result.succeed(signal)
  const reason = Result.isFailure(compiled)
    ? compiled.failure.replace(/^SyntaxError: /, "")
    : "the pattern is empty"
  return Result.fail(`not a regular expression: ${printable(reason)}`)
})

type Mappings = Software["mappings"]

/** A line of `mappings`, with the offset of the name of its image. */
type MappingLine = Mappings[number] & { readonly key: string; readonly at: number }

/** `- java_21: ">=1.20.5"`, and `- default: java_21` or an image reference. */
const mappingLines: Decoder<ReadonlyArray<MappingLine>> = (node, reading) => {
  const lines = list((item) => {
    if (item.kind === "map") return linesOf(item, reading)
    reading.problem(item.at, 'expected a mapping such as java_21: ">=1.20.5"')
    return undefined
  })(node, reading)
  const all = lines?.flat()
  if ((all ?? []).filter((line) => line.range === DEFAULT_RANGE).length > 1) {
    reading.problem(node.at, "`default` is there twice")
  }
  return all
}

const linesOf = (item: LocatedMap, reading: Reading): ReadonlyArray<MappingLine> =>
  item.entries.flatMap(({ at, key, node }) => {
    const value = text(Schema.String, "a version range")(node, reading)
    if (value === undefined) return []
    const [image, range, imageAt] = key === "default" ? [value, DEFAULT_RANGE, node.at] : [key, value, at]
    const parsed = range === DEFAULT_RANGE ? Result.succeed([]) : parseRange(range)
    if (Result.isFailure(parsed)) reading.problem(node.at, parsed.failure)
    return [{ key, image, range, at: imageAt }]
  })

/** Returns the mappings of the lines; an image that is neither a key of `images` nor a reference is a problem. */
const mappingsOf = (
  lines: ReadonlyArray<MappingLine>,
  images: Software["images"],
  reading: Reading
): Mappings =>
  lines.map(({ at, image, key, range }) => {
    const isReference = key === "default" && referenceOf(image) !== undefined
    if (!Object.hasOwn(images, image) && !isReference) {
      const keys = Object.keys(images).join(", ") || "none"
      reading.problem(at, `\`${printable(image, 80)}\` is not a key of \`images\` (${printable(keys)})`)
    }
    return { image, range }
  })

const policies = InstallScript.fields.warmup_failure_policy.literals

/** The policies of files for SLS: `continue` ignores a failed warm-up, `retry` fails after the retries. */
const policyOfSls = { continue: "ignore", retry: "fail" } as const

const warmupFailurePolicy: Decoder<(typeof policies)[number]> = (node, reading) => {
  const policy = word([...policies, "continue", "retry"])(node, reading)
  return policy === "continue" || policy === "retry" ? policyOfSls[policy] : policy
}

export const installScript = mapping("install-script.", {
  entrypoint: withDefault(trimmed(Command), "sh"),
  script: required(text(Script)),
  skip_scripts: withDefault(boolean, false),
  timeout: withDefault(number(Seconds), 1800),
  warmup: withDefault(boolean, false),
  "warmup-timeout": withDefault(number(Seconds), 600),
  "warmup-retries": withDefault(number(Retries), 0),
  "warmup-failure-policy": withDefault(warmupFailurePolicy, "fail"),
  "post-warmup-script": withDefault(text(Script), ""),
  "post-warmup-timeout": withDefault(number(Seconds), 120)
})

const quiesceLines = refined(list(text(QuiesceLine)), (lines) =>
  lines.length <= MOST_QUIESCE_LINES
    ? Result.succeed(lines)
    : Result.fail(`expected at most ${MOST_QUIESCE_LINES} lines, found ${lines.length}`)
)

/** How servers hold still for backups (spec 12.10). */
export const quiescePart = mapping("software.quiesce.", {
  before: required(
    refined(quiesceLines, (lines) =>
      lines.length > 0 ? Result.succeed(lines) : Result.fail("expected at least one line")
    )
  ),
  until: required(outputPattern),
  timeout: withDefault(number(QuiesceTimeout), DEFAULT_QUIESCE_TIMEOUT),
  after: withDefault(quiesceLines, []),
  "on-failure": withDefault(word(QuiesceFailure.literals), "continue")
})

const runtimeKinds: Decoder<Software["runtimes"]> = (node, reading) => {
  if (node.kind === "list" && node.items.length === 0) reading.problem(node.at, "`runtimes` is empty")
  return list(word(RuntimeKind.literals))(node, reading)
}

const standardRuntimes = (images: Software["images"]): Software["runtimes"] =>
  Object.keys(images).length > 0 ? ["docker"] : ["process"]

/** The id of a file without one, whose other mistakes are reported, too. */
const noId: Written<string> = { value: "", at: { file: "", line: 1, column: 1 } }

export const software = mapping(
  "software.",
  {
    id: required(written(definitionId), noId),
    name: text(Line),
    images: withDefault(record(text(ImageReference), keyOf(ImageKey, "a name")), {}),
    mappings: withDefault(mappingLines, []),
    invocation: required(invocation, ""),
    "stop-command": withDefault(trimmed(StopCommand), "^SIGTERM"),
    "stop-timeout": withDefault(number(StopTimeout), DEFAULT_STOP_TIMEOUT),
    "online-signal": outputPattern,
    "start-timeout": withDefault(number(Seconds), 300),
    "clean-exit": withDefault(word(CleanExit.literals), "crash"),
    "install-script": withDefault<InstallScript | null>(installScript, null),
    limits: withDefault(limits, {}),
    configs: withDefault(configs, {}),
    runtimes: runtimeKinds,
    terminal: withDefault(boolean, false),
    quiesce: quiescePart
  },
  ["update"]
)

export const softwareFile = mapping("", { software: required(software) }, ["update"])

export const parseSoftware: Decoder<SoftwareFile> = (root, reading) => {
  const decoded = softwareFile(root, reading)?.software
  if (decoded === undefined) return undefined
  const {
    configs,
    id,
    images,
    install_script,
    limits,
    mappings,
    name = id.value,
    quiesce,
    runtimes,
    ...process
  } = decoded
  const definition: Software = {
    id: id.value,
    name,
    images,
    mappings: mappingsOf(mappings, images, reading),
    process,
    install_script,
    limits,
    configs,
    runtimes: runtimes === undefined ? standardRuntimes(images) : [...new Set(runtimes)],
    ...(quiesce === undefined ? {} : { quiesce })
  }
  return { kind: "software", file: id.at.file, at: positionOf(id.at), id: id.value, software: definition }
}

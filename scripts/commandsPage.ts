/** The text of `docs/commands.md`, from the definitions of the commands. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Option } from "effect"
import { CliOutput, Command, type HelpDoc } from "effect/cli"
import { musterCommand } from "../src/cli/commands.ts"
import { SETTINGS_FOLLOW } from "../src/cli/shared/command.ts"
import { exitStatus } from "../src/cli/shared/failures.ts"

type Muster = Effect.Success<ReturnType<typeof musterCommand>>

/** Returns the help of a command, as `--help` prints it. */
const helpOf = Effect.fnUntraced(function* (muster: Muster, path: ReadonlyArray<string>) {
  let found: HelpDoc.HelpDoc | undefined
  const collect = CliOutput.layerPresenter({
    present: (event) =>
      Effect.sync(() => {
        if (event._tag === "Help") found = event.helpDoc
      })
  })
  yield* Effect.provide(
    Command.runWith(muster, { version: "" })([...path, "--help"]),
    Layer.merge(NodeServices.layer, collect)
  )
  return yield* found === undefined ? Effect.die(`${path.join(" ")} has no help`) : Effect.succeed(found)
})

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ")

const flagRow = ({ aliases, description, name, required, type }: HelpDoc.FlagDoc) => {
  const names = [`--${name}`, ...aliases].map((one) => `\`${one}\``).join(", ")
  const value = type === "boolean" ? "" : ` \`${cell(type)}\``
  const text = Option.getOrElse(description, () => "")
  // The help counts a flag that may be given several times, or never, as required.
  const isNeeded = required && !text.includes("repeatable")
  return `| ${names}${value} | ${cell(text)}${isNeeded ? `${text.endsWith(".") ? "" : "."} Required` : ""} |`
}

/** The flags of commands that print objects; the introduction explains them. */
const ofOutput = (name: string) => name === "output" || name === "json"

const flagsOf = ({ flags }: HelpDoc.HelpDoc): ReadonlyArray<string> => {
  const isPrinter = flags.some(({ name }) => name === "output")
  const rows = isPrinter
    ? [
        ...flags.filter(({ name }) => !ofOutput(name)).map(flagRow),
        "| `-o`, `--json` | [The form of the output](#read-the-output) |"
      ]
    : flags.map(flagRow)
  return rows.length === 0 ? [] : [["| Flag | Meaning |", "|---|---|", ...rows].join("\n")]
}

const argumentsOf = ({ args = [] }: HelpDoc.HelpDoc): ReadonlyArray<string> =>
  args.length === 0
    ? []
    : [
        args
          .map(({ description, name }) => `- \`${name}\`: ${Option.getOrElse(description, () => "")}`)
          .join("\n")
      ]

const examplesOf = ({ examples = [] }: HelpDoc.HelpDoc): ReadonlyArray<string> =>
  examples.length === 0
    ? []
    : [
        [
          "```text",
          ...examples.flatMap(({ command, description }) => [
            ...(description === undefined ? [] : [`# ${description}`]),
            command
          ]),
          "```"
        ].join("\n")
      ]

/** The description without the settings, which are on a page of their own. */
const ownText = (description: string): string => description.split(SETTINGS_FOLLOW)[0]?.trim() ?? ""

const sectionsOf = (
  muster: Muster,
  path: ReadonlyArray<string>
): Effect.Effect<ReadonlyArray<string>, Effect.Error<ReturnType<typeof helpOf>>> =>
  Effect.gen(function* () {
    const help = yield* helpOf(muster, path)
    const names = (help.subcommands ?? []).flatMap(({ commands }) => commands.map(({ name }) => name))
    const isGroup = names.length > 0
    const own = [
      `${"#".repeat(path.length + 1)} muster ${path.join(" ")}`,
      ownText(help.description),
      ...(isGroup
        ? []
        : [`\`${help.usage.trim()}\``, ...argumentsOf(help), ...flagsOf(help), ...examplesOf(help)])
    ]
    const below = yield* Effect.forEach(names, (name) => sectionsOf(muster, [...path, name]))
    return [...own, ...below.flat()]
  })

const statuses: Readonly<Record<keyof typeof exitStatus, string>> = {
  failed: "The operation failed. Standard error has the reason.",
  refused:
    "The service refuses because of the state or of the capacity (409, 503), or a start cannot succeed.",
  notFound: "The object does not exist.",
  notAllowed: "There is no key, or it is wrong or lacks a right (401, 403).",
  unreachable: "The service cannot be reached.",
  usage: "The command is used in a wrong way."
}

const statusRows = Object.entries(exitStatus).map(([name, status]) => {
  const [, text = ""] = Object.entries(statuses).find(([key]) => key === name) ?? []
  return `| ${status} | ${text} |`
})

const introduction = `# Commands

\`npm run docs\` writes this page from \`src/cli\`; do not edit it.

\`muster X\` means \`npm run -s muster -- X\` in a checkout. \`muster X --help\` prints the same as this page.

## Choose the service

A command calls the service of \`MUSTER_URL\` with the key of \`MUSTER_API_KEY\`. Without \`MUSTER_URL\`, it calls that of the
current context ([muster context](#muster-context)) with the key of the context. Without a context, it calls the service of
the data folder (\`MUSTER_DATA_DIR\`) at the socket \`muster.sock\`, whatever its port is: the owner of the folder and root need
no key there. A key goes only to a socket that this user or root owns, in folders that only they can change.

Commands name a server by its id, by the beginning of its id, or by its name. If several servers match, the message lists
them, and the status is 2. The same holds for nodes.

## Read the output

\`-o table\` is for people, \`-o wide\` has more columns; \`-o json\` (or \`--json\`) is the response of the API, \`-o jsonl\` has one
object a line, and \`-o id\` has ids only. Standard output has the result; standard error has notes, progress and reasons.
Colours appear on a terminal only, and never with \`NO_COLOR\`.

Tables, JSON and messages show control characters of names and of the service as \`?\` or escaped, so that they cannot act on a
terminal. \`servers console\` and \`servers logs\` pass the colours of a server on, and no other control sequences.

A command that destroys something asks first, unless \`--yes\` is given. Without a terminal and without \`--yes\` it refuses
with 64; \`keys revoke\` then revokes the key, so that no script leaves a leaked key valid.

| Status | Meaning |
|---|---|
| 0 | Done. |
${statusRows.join("\n")}
| 130 | Ctrl-C ended the command. |
| 141 | The reader of the output is gone, as of \`muster events -f \\| head -1\`. |`

/** The text of `docs/commands.md`. */
export const commandsPage = Effect.gen(function* () {
  const muster = yield* musterCommand(undefined)
  const { subcommands = [] } = yield* helpOf(muster, [])
  const names = subcommands.flatMap(({ commands }) => commands.map(({ name }) => name))
  const sections = yield* Effect.forEach(names, (name) => sectionsOf(muster, [name]))
  return `${[introduction, ...sections.flat()].join("\n\n")}\n`
})

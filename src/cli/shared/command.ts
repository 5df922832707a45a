/** The definition of a command with its help texts, and the flags that most commands share. */
import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { commandSettings } from "../../shared/config/command.ts"
import type { Setting } from "../../shared/config/Setting.ts"

/** A line of the help, without its indent, has at most so many characters. */
const LINES = /(?=\S).{1,94}(?=\s|$)/g

const INDENT = "      "

const wrapped = (text: string): string => (text.match(LINES) ?? []).map((line) => INDENT + line).join("\n")

type Listed = Pick<Setting<unknown>, "name" | "standard" | "meaning">

/** Begins the settings in a description. */
export const SETTINGS_FOLLOW = "Settings are environment variables;"

/** The description of a command, followed by its settings: name, default and what each of them sets. */
export const withSettings = (description: string, settings: Readonly<Record<string, Listed>>): string =>
  [
    `${description} ${SETTINGS_FOLLOW} docs/settings.md also lists their values:`,
    ...Object.values(settings).map(
      ({ meaning, name, standard }) =>
        `  ${name}${standard === "" ? "" : `=${standard}`}\n${wrapped(meaning.replaceAll("`", ""))}`
    )
  ].join("\n\n")

type Settings = Parameters<typeof withSettings>[1]

/** The help of a command. */
export interface Texts {
  readonly description: string
  /** The line in lists; default: the beginning of the description, up to a point, colon or semicolon. */
  readonly short?: string
  /** Command lines with their purposes. */
  readonly examples: Readonly<Record<string, string>>
  /** The settings that the description lists. */
  readonly settings?: Settings
}

type Step = Effect.Effect<unknown, unknown, unknown>

/** Makes a command that runs a generator of effects with its flags and arguments. */
export const command = <Name extends string, const Input extends Command.Command.Config, Eff extends Step>(
  name: Name,
  {
    description,
    examples,
    input,
    run,
    settings,
    short = description.split(/[.:;](?:\s|$)/, 1)[0] ?? description
  }: Texts & {
    readonly input: Input
    run(given: Command.Command.Config.Infer<Input>): Generator<Eff, unknown, never>
  }
) =>
  Command.make(name, input, Effect.fnUntraced(run, Effect.asVoid)).pipe(
    Command.withShortDescription(short),
    Command.withDescription(settings === undefined ? description : withSettings(description, settings)),
    Command.withExamples(
      Object.entries(examples).map(([command, purpose]) => ({ command, description: purpose }))
    )
  )

/** Makes a group of commands; its description lists their settings. */
export const group = <
  Name extends string,
  const Subcommands extends ReadonlyArray<Command.Command.SubcommandEntry>
>(
  name: Name,
  {
    description,
    settings = commandSettings,
    short,
    subcommands
  }: Omit<Texts, "examples"> & { readonly short: string; readonly subcommands: Subcommands }
) =>
  Command.make(name).pipe(
    Command.withShortDescription(short),
    Command.withDescription(withSettings(description, settings)),
    Command.withSubcommands(subcommands)
  )

export const textArgument = (name: string, description: string) =>
  Argument.String(name).pipe(Argument.withDescription(description))

export const choiceFlag = <const Choices extends ReadonlyArray<string>>(
  name: string,
  choices: Choices,
  description: string
) => Flag.Literals(name, choices).pipe(Flag.withDescription(description), Flag.optional)

export const switchFlag = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

export const textFlag = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

export const numberFlag = (name: string, description: string) =>
  Flag.Int(name).pipe(Flag.withDescription(description), Flag.optional)

export const severalFlag = (name: string, description: string, most = 256) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.between(0, most))

export const limitFlag = (description: string, standard: number) =>
  Flag.Int("limit").pipe(Flag.withDescription(description), Flag.withDefault(standard))

export const followFlag = (description: string) => switchFlag("follow", description).pipe(Flag.withAlias("f"))

/** Returns the fields that are given, for the body of a request. */
export const given = <Fields extends Readonly<Record<string, Option.Option<unknown>>>>(fields: Fields) =>
  Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => (Option.isSome(value) ? [[name, value.value]] : []))
    // Each entry has the name and the type of its field.
  ) as { readonly [Name in keyof Fields]?: Option.Option.Value<Fields[Name]> }

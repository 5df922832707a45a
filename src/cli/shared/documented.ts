/** The help texts and flags that most commands share. */
import { flow, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { commandSettings } from "../../shared/config/command.ts"
import { withSettings } from "../../shared/config/help.ts"

/** Returns a text up to its first point, colon or semicolon. */
const headline = (text: string): string => text.split(/[.:;](?:\s|$)/, 1)[0] ?? text

/**
 * Adds the texts of a command. The beginning of `description`, up to a point, colon or semicolon, is its line in lists.
 */
export const documented = (
  description: string,
  examples: Readonly<Record<string, string>>,
  short = headline(description)
) =>
  flow(
    Command.withShortDescription(short),
    Command.withDescription(description),
    Command.withExamples(
      Object.entries(examples).map(([command, purpose]) => ({ command, description: purpose }))
    )
  )

/** Adds the texts of a group of commands, with the settings of its commands. */
export const documentedGroup = (
  short: string,
  description: string,
  settings: Parameters<typeof withSettings>[1] = commandSettings
) => flow(Command.withShortDescription(short), Command.withDescription(withSettings(description, settings)))

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

/** Settings as the help of a command lists them. */
import type { Setting } from "./Setting.ts"

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

import { Console } from "effect"
import { type CliError, CliOutput } from "effect/cli"

/** Prints a mistake in the command line in one line, without the whole help. */
export const UsageErrors = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Console.error([...event.errors.map(lineOf), `See ${event.commandPath.join(" ")} --help.`].join("\n"))
      : CliOutput.defaultPresenter.present(event)
})

const lineOf = (error: CliError.NonShowHelpErrors): string => {
  const suggestions = "suggestions" in error ? error.suggestions : []
  const [first = ""] = error.message.split("\n")
  const line = first.replace(". Expected: Schema validation failed: ", "; ").replace(/\p{Cc}/gu, "")
  return suggestions.length === 0 ? line : `${line}. Did you mean ${suggestions.join(" or ")}?`
}

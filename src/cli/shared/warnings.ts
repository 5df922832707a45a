import { Effect } from "effect"
import type { DefinitionWarning } from "../../contract/domain/SourceView.ts"
import { CommandError } from "./CommandError.ts"
import { ask } from "./musterClient.ts"
import { note } from "./terminal.ts"

/** Prints the warnings about the definitions of a folder. */
export const printWarnings = Effect.fnUntraced(function* (of: DefinitionWarning["folder"]) {
  const warnings = yield* ask((muster) => muster.blueprints.warnings())
  yield* Effect.forEach(
    warnings.filter(({ folder }) => folder === of),
    ({ detail }) => note(`warning: ${detail}`),
    { discard: true }
  )
})

/** Runs a reload. Invalid files are no mistake in the command line: they fail, as `muster blueprints check` does. */
export const reloading = <A, R>(reload: Effect.Effect<A, CommandError, R>) =>
  Effect.mapError(
    reload,
    ({ message, status }) => new CommandError({ status: status === "usage" ? "failed" : status, message })
  )

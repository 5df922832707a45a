import { Effect } from "effect"
import type { DefinitionWarning } from "../../domain/SourceView.ts"
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

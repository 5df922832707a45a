import { Console, Effect } from "effect"
import type { MusterClient } from "../../client/index.ts"
import type { DefinitionWarning } from "../../contract/domain/SourceView.ts"
import { CommandError } from "./CommandError.ts"
import { command, type Texts } from "./command.ts"
import { ask } from "./musterClient.ts"
import { note } from "./terminal.ts"

/** A command `reload`, which prints the warnings about the definitions of a folder. */
export const reloadCommand = <E extends object, R>(
  of: DefinitionWarning["folder"],
  reload: (muster: MusterClient["Service"]) => Effect.Effect<void, E, R>,
  done: string,
  texts: Texts
) =>
  command("reload", {
    ...texts,
    input: {},
    *run() {
      yield* Effect.mapError(
        ask(reload),
        ({ message, status }) =>
          // Invalid files are no mistake in the command line: they fail, as `muster blueprints check` does.
          new CommandError({ status: status === "usage" ? "failed" : status, message })
      )
      yield* Console.log(done)
      const warnings = yield* ask((muster) => muster.blueprints.warnings())
      for (const { detail, folder } of warnings) if (folder === of) yield* note(`warning: ${detail}`)
    }
  })

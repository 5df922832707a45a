import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { commandSettings } from "../config/command.ts"
import { withSettings } from "../config/help.ts"
import type { SettingView } from "../domain/SettingView.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { type Listing, outputFlags, printList } from "./shared/output.ts"

const listing: Listing<SettingView> = {
  id: ({ name }) => name,
  columns: [
    { name: "setting", of: ({ name }) => name },
    { name: "value", of: ({ value }) => value ?? "(secret)" },
    { name: "source", of: ({ source }) => source }
  ]
}

/** `muster config`: the settings that a running service has read. */
export const config = Command.make(
  "config",
  {
    changed: Flag.Boolean("changed").pipe(
      Flag.withDescription("Only settings that differ from their defaults"),
      Flag.withDefault(false)
    ),
    ...outputFlags
  },
  Effect.fn(function* ({ changed, ...flags }) {
    const all = yield* ask((muster) => muster.system.settings())
    const shown = changed ? all.filter(({ source }) => source !== "default") : all
    yield* printList(flags, listing, shown, "All settings have their defaults.")
  })
).pipe(
  Command.withShortDescription("Show the configuration that the service runs with"),
  Command.withDescription(
    withSettings(
      "Show the settings that the running service has read at its start, and where each value is from: default, environment or file. Secrets are hidden. Needs a key of scope AppAdmin.",
      commandSettings
    )
  ),
  Command.withExamples([
    { command: "muster config --changed", description: "What differs from the defaults" },
    { command: "muster config --json", description: "All settings, for programs" }
  ]),
  Command.provide(CommandClient)
)

import { Command } from "effect/cli"
import type { SettingView } from "../contract/domain/SettingView.ts"
import { commandSettings } from "../shared/config/command.ts"
import { command, switchFlag } from "./shared/command.ts"
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
export const config = command("config", {
  description:
    "Show the settings that the running service has read at its start, and where each value is from: default, environment or file. Secrets are hidden. Needs a key of scope AppAdmin.",
  settings: commandSettings,
  short: "Show the configuration that the service runs with",
  examples: {
    "muster config --changed": "What differs from the defaults",
    "muster config --json": "All settings, for programs"
  },
  input: {
    changed: switchFlag("changed", "Only settings that differ from their defaults"),
    ...outputFlags
  },
  *run({ changed, ...flags }) {
    const all = yield* ask((muster) => muster.system.settings())
    const shown = changed ? all.filter(({ source }) => source !== "default") : all
    yield* printList(flags, listing, shown, "All settings have their defaults.")
  }
}).pipe(Command.provide(CommandClient))

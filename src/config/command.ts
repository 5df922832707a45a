/** Settings of the commands that talk to a running service. An empty variable counts as unset. */
import { address, text } from "./kinds.ts"
import { readAll, secret, setting } from "./Setting.ts"
import { settings } from "./service.ts"

/** All of them, in the order in which the README lists them. */
export const commandSettings = {
  url: setting("MUSTER_URL", "http://127.0.0.1:5620", "Where the service is.", address),
  apiKey: secret(
    "MUSTER_API_KEY",
    "",
    "A key of scope AppAdmin; unset: that of `admin.key` in the data folder.",
    text
  ),
  dataDir: settings.dataDir
} as const

export const loadCommandSettings = readAll(commandSettings)

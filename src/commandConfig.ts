/** Settings of the commands that talk to a running service. An empty variable counts as unset. */
import { readAll, setting, settings, text } from "./config.ts"

const address = {
  may: "an address such as https://muster.example.com",
  read: (value: string) => (/^https?:\/\//.test(value) && URL.canParse(value) ? value : undefined)
}

/** All of them, in the order in which the README lists them. */
export const commandSettings = {
  url: setting("MUSTER_URL", "http://127.0.0.1:5620", "Where the service is.", address),
  apiKey: setting(
    "MUSTER_API_KEY",
    "",
    "A key of scope AppAdmin; unset: that of `admin.key` in the data folder.",
    text
  ),
  dataDir: settings.dataDir
} as const

export const loadCommandSettings = readAll(commandSettings)

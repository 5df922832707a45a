/** Settings of the commands that call a running service. An empty variable counts as unset. */
import { address, text } from "./kinds.ts"
import { readAll, secret, setting } from "./Setting.ts"
import { settings } from "./service.ts"

/** All settings in their documented order. */
export const commandSettings = {
  url: setting(
    "MUSTER_URL",
    "http://127.0.0.1:5620",
    "Address of the service that the command calls.",
    address
  ),
  apiKey: secret(
    "MUSTER_API_KEY",
    "",
    "Key with scope `AppAdmin`. Unset: the key in `admin.key` of the data folder. Set it on other machines.",
    text
  ),
  dataDir: settings.dataDir
} as const

export const loadCommandSettings = readAll(commandSettings)

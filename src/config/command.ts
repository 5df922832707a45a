/** Settings of the commands that call a running service. An empty variable counts as unset. */
import { optionalAddress, text } from "./kinds.ts"
import { readAll, secret, setting } from "./Setting.ts"
import { settings } from "./service.ts"

/** The address of a service with the default settings, on this machine. */
export const LOCAL_SERVICE = "http://127.0.0.1:5620"

/** All settings in their documented order. */
export const commandSettings = {
  url: setting(
    "MUSTER_URL",
    "",
    `Address of the service that the command calls. Unset: that of the current context (\`muster context\`), else \`${LOCAL_SERVICE}\`.`,
    optionalAddress
  ),
  apiKey: secret(
    "MUSTER_API_KEY",
    "",
    "Key for the service. Unset: that of the current context, else, for a loopback address, the key in `admin.key` of the data folder.",
    text
  ),
  dataDir: settings.dataDir
} as const

export const loadCommandSettings = readAll(commandSettings)

/** Settings of the commands that call a running service. An empty variable counts as unset. */
import { optionalAddress, text } from "./kinds.ts"
import { readAll, secret, setting } from "./Setting.ts"
import { settings } from "./service.ts"

export const commandSettings = {
  url: setting("MUSTER_URL", "", optionalAddress).means(
    "Address of the service that the command calls. Unset: that of the current context (`muster context`), else the socket of the data folder, `muster.sock`."
  ),
  apiKey: secret("MUSTER_API_KEY", "", text).means(
    "Key for the service. Unset: that of the current context; at the socket of the data folder, the owner of the folder and root need none. Without `MUSTER_URL`, it goes only to a socket of this user or root."
  ),
  dataDir: settings.dataDir
} as const

export const loadCommandSettings = readAll(commandSettings)

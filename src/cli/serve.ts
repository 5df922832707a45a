import { service } from "../app/service.ts"
import { settings } from "../shared/config/service.ts"
import { command } from "./shared/command.ts"

export const serve = command("serve", {
  description: "Run the service.",
  settings: settings,
  short: "Run the service",
  examples: {
    "muster serve": "With the defaults, on this machine",
    "MUSTER_PORT=5621 MUSTER_DATA_DIR=/var/lib/muster muster serve": "With another port and data folder"
  },
  input: {},
  *run() {
    yield* service
  }
})

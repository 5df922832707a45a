/** A server that prints its address. */
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../support/definitions.ts"
import { Muster } from "../support/Muster.ts"
import { expectStatus } from "../support/servers.ts"

const server = { "server.sh": `echo "address $SERVER_IP $SERVER_PORT $SERVER_PORT_QUERY"\n${consoleServer}` }

export const portDefinitions = {
  software: { "game.yml": softwareFile("game", { files: server }) },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "named.yml": blueprintFile("named", "game", { server: { ports: ["game", "query"] } }),
    "again.yml": blueprintFile("again", "game", { server: { restart: { on_crash: true, delay: 0 } } })
  }
}

/** A service whose embedded node has these ports. */
export const serviceOn = (allocations: string) =>
  Muster.layer(portDefinitions, { MUSTER_EMBEDDED_ALLOCATIONS: allocations })

/** The server with its ports and the time of its last change. */
export const shown = Effect.fnUntraced(function* (id: string) {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=ports,updated_at`)).json
})

/** Rollouts over HTTP, of servers whose blueprint changes. */

import { Effect } from "effect"
import type { Rollout } from "../../src/contract/domain/Rollout.ts"
import { blueprintFile, type Definitions, type Files, softwareFile, writeFiles } from "./definitions.ts"
import { eventually } from "./eventually.ts"
import type { Service, ServiceFailed } from "./Service.ts"
import { expectStatus } from "./servers.ts"

type Api = Pick<Service, "request">

/**
 * A server that is online at once and prints its version and memory limit. It crashes if its label, the variable
 * `BROKEN`, is the version.
 */
const server = `echo "version $VERSION"
[ "$BROKEN" = "$VERSION" ] && exit 3
echo ready
while read -r what; do [ "$what" = stop ] && exit 0; done`

/** The blueprint `fleet` and others in a version. */
export const fleetBlueprints = (version: string, memory_limit = 64): Files => {
  const of = (id: string, software: string, save = true) =>
    blueprintFile(id, software, {
      save,
      server: { version, limits: { memory_limit } },
      rest: { state: { env: { VERSION: version }, "env-allow": ["BROKEN"] } }
    })
  return {
    "fleet.yml": of("fleet", "game"),
    "passing.yml": of("passing", "game", false),
    "endless.yml": of("endless", "endless")
  }
}

export const fleetSoftware: Files = {
  "game.yml": softwareFile("game", { files: { "server.sh": server } }),
  "endless.yml": softwareFile("endless", { install: { script: "while :; do sleep 1; done" } })
}

/** The definitions of the first version. */
export const fleetFiles = { blueprints: fleetBlueprints("one"), software: fleetSoftware }

/** Replaces the blueprints, and reloads them. */
export const publish = Effect.fnUntraced(function* (
  api: Api & { readonly folders: Pick<Definitions, "blueprints"> },
  ...version: Parameters<typeof fleetBlueprints>
) {
  yield* writeFiles(api.folders.blueprints, fleetBlueprints(...version))
  yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
})

/** Creates a rollout. */
export const rollOut = (
  api: Api,
  body: Readonly<Record<string, unknown>>
): Effect.Effect<Rollout, ServiceFailed> =>
  Effect.map(expectStatus(api, 201, "POST", "/api/rollouts", { body }), ({ json }) => json)

export const rolloutOf = (api: Api, id: string): Effect.Effect<Rollout, ServiceFailed> =>
  Effect.map(expectStatus(api, 200, "GET", `/api/rollouts/${id}`), ({ json }) => json)

/** Waits until a rollout has a state. */
export const rolloutIs = (api: Api, id: string, state: Rollout["state"], within?: `${number} seconds`) =>
  eventually(rolloutOf(api, id), (rollout) => rollout.state === state, within)

export const changeRollout = (api: Api, id: string, change: "pause" | "resume" | "abort") =>
  api.request("POST", `/api/rollouts/${id}/${change}`)

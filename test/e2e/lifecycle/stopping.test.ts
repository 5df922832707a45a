import { describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, softwareFile } from "../../support/definitions.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, expectStatus, powered, running } from "../../support/servers.ts"

/** A server that ignores its stop command. */
const deaf = (timeout: number) =>
  softwareFile("deaf", {
    invocation: "sh -c 'echo ready; while read -r line; do :; done'",
    extra: { "stop-timeout": timeout }
  })

const definitions = {
  software: { "deaf.yml": deaf(1), "patient.yml": deaf(3600).replaceAll('"deaf"', '"patient"') },
  blueprints: {
    "deaf.yml": blueprintFile("deaf", "deaf"),
    "patient.yml": blueprintFile("patient", "patient"),
    "brief.yml": blueprintFile("brief", "patient", { server: { stop_timeout: 1 } })
  }
}

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("life, stopping and restarting: the stop timeout", () => {
    it.effect("of the software, the blueprint or the overrides ends a server that ignores its stop", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [blueprint, overrides] of [
          ["deaf", {}],
          ["brief", {}],
          ["patient", { stop_timeout: 1 }]
        ] as const) {
          const id = yield* running(api, blueprint, { overrides })
          yield* powered(api, id, "stop")
          yield* becomes(api, id, "offline")
        }
      })
    )

    it.effect("applies to a reset", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "deaf")
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reset`)
        yield* becomes(api, id, "offline")
      })
    )

    it.effect("is replaced by wait_seconds of a request, up to 3600", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "patient")
        yield* powered(api, id, "stop", 3600)
        yield* powered(api, id, "stop", 1)
        yield* becomes(api, id, "offline")
      })
    )

    it.effect("is between 1 and 3600 seconds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const stop_timeout of [0, 3601]) {
          yield* expectStatus(api, 422, "POST", "/api/servers", {
            body: { blueprint_id: "deaf", overrides: { stop_timeout } }
          })
        }
      })
    )
  })
})

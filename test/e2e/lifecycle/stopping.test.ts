import { rmSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { eventsAre } from "../../support/events.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, create, expectStatus, power, powered, running } from "../../support/servers.ts"
import { down, follow, up } from "./setup.ts"

/** A server that ignores its stop command. */
const deaf = (timeout: number) =>
  softwareFile("deaf", {
    invocation: "sh -c 'echo ready; while read -r line; do :; done'",
    extra: { "stop-timeout": timeout }
  })

/** Lets the installations of `gated` finish; outside of /tmp, because install scripts have a private /tmp. */
const gate = join(
  process.geteuid?.() === 0 ? "/var/lib" : homedir(),
  `muster-test-gate-${process.pid}-${Date.now()}`
)

const openGate = Effect.acquireRelease(
  Effect.sync(() => writeFileSync(gate, "")),
  () => Effect.sync(() => rmSync(gate))
)

const definitions = {
  software: {
    "deaf.yml": deaf(1),
    "patient.yml": deaf(3600).replaceAll('"deaf"', '"patient"'),
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "gated.yml": softwareFile("gated", {
      files: { "server.sh": consoleServer },
      install: { script: `until test -e ${gate}; do sleep 0.05; done` }
    })
  },
  blueprints: {
    "game.yml": blueprintFile("game", "game"),
    "gated.yml": blueprintFile("gated", "gated"),
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

  describe("life, stopping and restarting: a start during the installation", () => {
    it.effect("is accepted; the server starts once it is installed, unless a stop came in between", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const [started, stopped] = [yield* create(api, "gated"), yield* create(api, "gated")]
        for (const id of [started, stopped]) {
          yield* powered(api, id, "start")
          yield* powered(api, id, "start")
        }
        yield* powered(api, stopped, "stop")
        assert.strictEqual((yield* power(api, stopped, "stop")).status, 409)
        yield* openGate
        yield* eventsAre(stream, started, up)
        yield* eventsAre(stream, stopped, ["installing", "offline"])
      }).pipe(Effect.scoped)
    )
  })

  describe("life, stopping and restarting: a paused server", () => {
    it.effect("is unpaused by a start and before a stop", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "game")
        for (const action of ["start", "stop"]) {
          yield* powered(api, id, "pause")
          yield* becomes(api, id, "paused")
          yield* powered(api, id, action)
        }
        yield* eventsAre(stream, id, [...up, "paused", "running", "paused", "running", ...down])
      })
    )
  })

  describe("life, stopping and restarting: the stop command as a line", () => {
    it.effect("is a stop: the end of the server is no crash", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "game")
        yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, {
          body: { commands: ["say bye", "stop"] }
        })
        yield* eventsAre(stream, id, [...up, ...down])
      })
    )

    it.effect("has the stop timeout", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "deaf")
        yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, { body: { commands: ["stop"] } })
        yield* becomes(api, id, "offline")
      })
    )
  })
})

import { rmSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  blueprintFile,
  consoleServer,
  softwareFile,
  definitions as writeDefinitions
} from "../../support/definitions.ts"
import { eventsAre } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { makeRestartingService } from "../../support/faults/index.ts"
import { Muster } from "../../support/Muster.ts"
import { endLeftovers } from "../../support/processes.ts"
import type { Service } from "../../support/Service.ts"
import { becomes, commands, create, expectStatus, power, powered, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { down, follow, up, upAgain } from "./setup.ts"

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
    "doomed.yml": softwareFile("doomed", { invocation: "sh -c 'exit 5'" }),
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "gated.yml": softwareFile("gated", {
      files: { "server.sh": consoleServer },
      install: { script: `until test -e ${gate}; do sleep 0.05; done` }
    })
  },
  blueprints: {
    "game.yml": blueprintFile("game", "game"),
    "gated.yml": blueprintFile("gated", "gated"),
    "fragile.yml": blueprintFile("fragile", "game", {
      server: { restart: { on_crash: true, delay: 3600, max_delay: 3600 } }
    }),
    "doomed.yml": blueprintFile("doomed", "doomed", {
      server: { restart: { on_crash: true, delay: 0, max_per_hour: 1 } }
    }),
    "once.yml": blueprintFile("once", "game", {
      server: { restart: { on_crash: true, delay: 0, max_per_hour: 1 } }
    }),
    "deaf.yml": blueprintFile("deaf", "deaf"),
    "patient.yml": blueprintFile("patient", "patient"),
    "brief.yml": blueprintFile("brief", "patient", { server: { stop_timeout: 1 } })
  }
}

const restartOf = (api: Pick<Service, "request">, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}?include=restart`), ({ json }) => json.restart)

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("spec 3.9: stopping and restarting: the stop timeout", () => {
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

  describe("spec 3.9: stopping and restarting: a start during the installation", () => {
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

  describe("spec 3.9: stopping and restarting: a paused server", () => {
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

  describe("spec 3.9: stopping and restarting: the stop command as a line", () => {
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

  describe("spec 3.9: stopping and restarting: the restart of a crashed server", () => {
    it.effect("is pending until next_at; a stop, a reset or a reinstallation cancels it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "fragile")
        assert.isNull(yield* restartOf(api, id))
        for (const cancel of ["power", "reset", "reinstall"]) {
          yield* commands(api, id, "exit 3")
          const restart = yield* eventually(restartOf(api, id), (it) => it !== null)
          assert.strictEqual(restart.attempt, 1)
          assert.isAbove(Date.parse(restart.next_at), Date.now())
          yield* becomes(api, id, "offline")
          const body = cancel === "power" ? { body: { action: "stop" } } : {}
          const answer = yield* api.request("POST", `/api/servers/${id}/${cancel}`, body)
          assert.include([200, 202], answer.status)
          yield* eventually(restartOf(api, id), (it) => it === null)
          yield* becomes(api, id, "offline")
          yield* eventually(power(api, id, "start"), ({ status }) => status === 200)
          yield* becomes(api, id, "running")
        }
      })
    )

    it.effect("comes at once with a start by a caller, which also begins the attempts again", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "fragile")
        for (const _ of [1, 2]) {
          yield* commands(api, id, "exit 3")
          const restart = yield* eventually(restartOf(api, id), (it) => it !== null)
          assert.strictEqual(restart.attempt, 1)
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          assert.isNull(yield* restartOf(api, id))
        }
      })
    )

    it.effect("is given up after the last one, with the reason", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "once")
        yield* commands(api, id, "exit 3")
        yield* eventsAre(stream, id, [...up, "crash exit code 3", "offline", ...upAgain])
        yield* commands(api, id, "exit 4")
        const restart = yield* eventually(restartOf(api, id), (it) => it !== null)
        const reason =
          "it crashed (exit code 4) after 1 restart within the hour, and restart.max_per_hour is 1"
        assert.deepStrictEqual(restart, { given_up: true, reason })
        yield* becomes(api, id, "offline")
        const crashes = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/crashes`)
        const [last, first] = crashes.json.map((crash: { readonly restart: unknown }) => crash.restart)
        assert.deepStrictEqual(last, restart)
        assert.strictEqual(first.attempt, 1)
      })
    )

    it.effect("is given up with the reason for a caller that waits", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json } = yield* expectStatus(api, 409, "POST", "/api/servers", {
          body: { blueprint_id: "doomed", start: true },
          headers: { prefer: "wait=30" }
        })
        assert.include(json.detail, "it crashed (exit code 5) after 1 restart within the hour")
      })
    )
  })
})

describe("spec 3.9: stopping and restarting: the restart of a crashed server", () => {
  it.live(
    "stays pending, at its time, when service and daemon are killed",
    () =>
      Effect.gen(function* () {
        const folders = yield* writeDefinitions({
          software: definitions.software,
          blueprints: {
            ...definitions.blueprints,
            "soon.yml": blueprintFile("soon", "game", { server: { restart: { on_crash: true, delay: 2 } } })
          }
        })
        const dataDir = join(yield* temporaryFolder, "data")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const restarting = yield* makeRestartingService({ dataDir, env: folders.env })
        let api = yield* restarting.current
        const [late, soon] = [yield* running(api, "fragile"), yield* running(api, "soon")]
        yield* commands(api, late, "exit 3")
        yield* commands(api, soon, "exit 3")
        const before = yield* eventually(restartOf(api, late), (it) => it !== null)
        yield* restarting.killAndRestart()
        api = yield* restarting.current
        assert.deepStrictEqual(yield* restartOf(api, late), before)
        yield* becomes(api, soon, "running")
      }).pipe(Effect.scoped),
    60_000
  )
})

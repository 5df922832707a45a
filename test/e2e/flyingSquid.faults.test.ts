import { readdirSync, readFileSync, statSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { plainEnv } from "../support/child.ts"
import { blueprintFile, softwareFile } from "../support/definitions.ts"
import { eventsAre, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { minecraftPing } from "../support/minecraftPing.ts"
import { freeAllocations } from "../support/ports.ts"
import { adminKey, type Service } from "../support/Service.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  logsHave,
  logsOf,
  powered,
  running
} from "../support/servers.ts"

const shipped = (path: string) => readFileSync(resolve(import.meta.dirname, "../..", path), "utf8")

const definitions = {
  software: {
    "flying-squid.yml": shipped("software/flying-squid.yml"),
    "environment.yml": softwareFile("environment", {
      invocation: "sh -c 'env; echo ready; cat'",
      install: { script: "env" },
      extra: { "stop-command": "^SIGTERM" }
    })
  },
  blueprints: {
    "mixins/defaults.yml": shipped("blueprints/mixins/defaults.yml"),
    "flying-squid.yml": shipped("blueprints/flying-squid.yml"),
    "environment.yml": blueprintFile("environment", "environment")
  }
}

/** No program that the service starts may see these. */
const secrets = {
  APP_ADMIN_API_KEY: adminKey,
  MUSTER_NODE_LOCATION: "a secret place",
  OF_THE_HOST: "a host's secret"
}

const service = Layer.unwrap(
  Effect.map(freeAllocations(4), (allocations) =>
    Muster.layer(definitions, { ...plainEnv(), ...secrets, ...allocations })
  )
)

const created = ["installing", "offline", "starting", "running"]
const ended = ["stopping", "offline"]

/** The installation of a server in the API. */
const installOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/install`), (answer) => answer.json)

/** The default allocation of a server in the API. */
const addressOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}`), (answer) => {
    const { ip, port } = answer.json.allocations.default
    return { ip: String(ip), port: Number(port) }
  })

layer(service, { excludeTestServices: true, timeout: "60 seconds" })("a real game server", (it) => {
  describe("flying-squid, from the npm registry", () => {
    it.effect(
      "the server is installed, answers a Minecraft client at its allocation, and its base is installed once",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const stream = yield* subscribe(api)
          const first = yield* create(api, "flying-squid", { start: true })
          const { phase, exit_code } = yield* eventually(
            installOf(api, first),
            (install) => install.phase === "ready" || install.phase === "failed",
            "240 seconds"
          )
          const printed = yield* expectStatus(api, 200, "GET", `/api/servers/${first}/install/logs`)
          assert.deepStrictEqual({ phase, exit_code }, { phase: "ready", exit_code: 0 }, printed.text)
          yield* becomes(api, first, "running", "60 seconds")

          const { ip, port } = yield* addressOf(api, first)
          const { status, pong } = yield* minecraftPing(ip, port, 0x1234_5678_9abc_def0n)
          assert.strictEqual(pong, 0x1234_5678_9abc_def0n)
          assert.deepStrictEqual(status.version, { name: "1.21.4", protocol: 769 })
          assert.deepStrictEqual(status.players, { max: 20, online: 0 })
          assert.include(JSON.stringify(status.description), "Flying squid, run by Muster")
          const console = yield* logsOf(api, first)
          assert.isTrue(
            console.some((line) => line.includes(`Server listening on port ${port}`)),
            console.join("\n")
          )

          const bases = join(api.dataDir, "node/base/flying-squid")
          const base = join(bases, readdirSync(bases)[0] ?? "")
          const made = statSync(join(base, "package.json"), { bigint: true })
          const second = yield* create(api, "flying-squid", { start: true })
          yield* becomes(api, second, "running", "60 seconds")
          const again = statSync(join(base, "package.json"), { bigint: true })
          assert.deepStrictEqual([again.ino, again.mtimeNs], [made.ino, made.mtimeNs])
          // No script has run for it, so there is no exit code.
          assert.isUndefined((yield* installOf(api, second)).exit_code)
          const other = yield* addressOf(api, second)
          assert.notStrictEqual(other.port, port)
          assert.strictEqual((yield* minecraftPing(other.ip, other.port, -1n)).pong, -1n)

          yield* commands(api, second, "stop")
          yield* becomes(api, second, "offline")
          assert.deepStrictEqual(stream.of(second), [...created, ...ended])
          yield* powered(api, first, "stop")
          yield* eventsAre(stream, first, [...created, ...ended])
          assert.strictEqual((yield* Effect.flip(minecraftPing(ip, port, 1n)))._tag, "ServiceFailed")
        }).pipe(Effect.scoped),
      360_000
    )
  })

  describe("the process runtime", () => {
    it.effect("install scripts and servers get no secret of the service or the host", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "environment")
        yield* logsHave(api, id, "ready")
        const install = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs?per_page=1000`)
        const script: ReadonlyArray<string> = install.json.data
        for (const lines of [yield* logsOf(api, id), script]) {
          assert.isTrue(lines.some((line) => line.startsWith("PATH=")))
          const text = lines.join("\n")
          for (const [name, value] of Object.entries(secrets)) {
            assert.notInclude(text, `${name}=`)
            assert.notInclude(text, value)
          }
          assert.notInclude(text, "MUSTER_DATA_DIR=")
        }
        yield* powered(api, id, "stop")
        yield* becomes(api, id, "offline")
      })
    )
  })
})

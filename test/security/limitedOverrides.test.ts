import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Right } from "../../src/contract/domain/Key.ts"
import { assertError, options } from "../controlPlane/http/support/http.ts"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { blueprintFile, consoleServer, softwareFile } from "../support/definitions.ts"
import { Muster } from "../support/Muster.ts"
import { create, expectStatus, installed } from "../support/servers.ts"

const patch = { parser: "properties", find: { motd: "hi" } }

const service = Muster.layer(
  {
    software: {
      "game.yml": softwareFile("game", {
        files: { "server.sh": consoleServer },
        invocation: "bash server.sh {{env.PLACED}} {{SHOUTED}}",
        install: { script: 'echo "$SCRIPTED"' },
        extra: { configs: { "of.software": { parser: "properties", find: { a: "{{env.CONFIGURED}}" } } } }
      }),
      "spy.yml": softwareFile("spy", { files: { "server.sh": consoleServer } })
    },
    blueprints: {
      "plain.yml": blueprintFile("plain", "game", {
        rest: {
          state: {
            env: { MOTD: "hi", PATH: "/usr/bin:/bin", OF: "{{env.NESTED}}" },
            "env-allow": ["FREE_*", "PS4"]
          }
        }
      }),
      "ruled.yml": blueprintFile("ruled", "game", { rest: { files: { deny: ["*.key"], mounts: "hidden" } } }),
      "patched.yml": blueprintFile("patched", "game", { server: { configs: { "game.properties": patch } } }),
      "swappy.yml": blueprintFile("swappy", "game", {
        server: { limits: { swap: 4096, oom_disabled: true } }
      }),
      "spy.yml": blueprintFile("spy", "spy")
    }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27900-27999" }
)

const every = { allow: Right.literals }

layer(service, options)("overrides of keys without full rights", (it) => {
  describe("docs/keys.md, Choose a scope", () => {
    it.effect("a key sets declared variables only, and none that changes how programs run", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const limited = yield* keyed("Operator", { ...every, blueprints: ["plain"] })
        const operator = yield* keyed("Operator", every)
        const id = yield* create(admin, "plain", { overrides: { env: { UNDECLARED: "1" } } })
        const undeclared = (name: string) =>
          `overrides.env: refused: neither blueprint plain nor software game declares ${name}`
        for (const key of [limited, operator]) {
          for (const [name, detail] of [
            ["UNDECLARED", undeclared("UNDECLARED")],
            ["SHELL_EXTRA", undeclared("SHELL_EXTRA")],
            ["FREE", undeclared("FREE")],
            ["SHELLOPTS", /SHELLOPTS: refused: this variable changes how programs run$/],
            ["npm_config_node_options", /refused: the variables npm_\* change how/],
            ["PATH", /PATH: refused: this variable changes/]
          ] as const) {
            const overrides = { env: { MOTD: "x", [name]: "$(id)" } }
            for (const query of ["", "?dry_run=true"]) {
              const body = { blueprint_id: "plain", overrides }
              const answer = yield* key.request("POST", `/api/servers${query}`, { body })
              assert.include(assertError(answer, 422, detail).hint, "`state.env-allow` of blueprint plain")
            }
            assertError(
              yield* key.request("PATCH", `/api/servers/${id}`, { body: { overrides } }),
              422,
              detail
            )
          }
          const names = "MOTD motd PLACED SHOUTED SCRIPTED CONFIGURED NESTED FREE_ANY PS4"
          const env = Object.fromEntries(names.split(" ").map((name) => [name, "x"]))
          yield* expectStatus(key, 200, "PATCH", `/api/servers/${id}`, { body: { overrides: { env } } })
          // A variable of an administrator stays, and can be removed.
          yield* expectStatus(key, 202, "POST", `/api/servers/${id}/upgrade`)
        }
        const env = { UNDECLARED: null, MOTD: "{{env.SMUGGLED}}" }
        yield* expectStatus(limited, 200, "PATCH", `/api/servers/${id}`, { body: { overrides: { env } } })
        const smuggled = {
          env: { SMUGGLED: "1" },
          configs: { "of.software": { find: { a: "{{env.SMUGGLED}}" } } }
        }
        assertError(
          yield* limited.request("PATCH", `/api/servers/${id}`, { body: { overrides: smuggled } }),
          422,
          undeclared("SMUGGLED")
        )
        yield* expectStatus(admin, 200, "DELETE", `/api/servers/${id}?force=true`)
      })
    )
  })

  describe("spec 10.4: rules of blueprints", () => {
    it.effect("no override sets the rules of files, and all keep them", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const operator = yield* keyed("Operator", every)
        const id = yield* create(admin, "ruled")
        const path = `/api/servers/${id}`
        const overrides = { files: { deny: [] } }
        for (const key of [admin, operator]) {
          assertError(yield* key.request("PATCH", path, { body: { overrides } }), 422, /files/)
          const body = { blueprint_id: "ruled", overrides }
          assertError(yield* key.request("POST", "/api/servers", { body }), 422, /files/)
        }
        const other = { software: "spy" }
        const dryRun = { body: { blueprint_id: "ruled", overrides: other } }
        const { json: planned } = yield* expectStatus(
          operator,
          200,
          "POST",
          "/api/servers?dry_run=true",
          dryRun
        )
        const files = { deny: ["*.key"], mounts: "hidden" }
        assert.deepInclude(planned.definition, { software: "spy", files })
        yield* expectStatus(operator, 200, "PATCH", path, { body: { overrides: other } })
        const { json: upgrade } = yield* expectStatus(operator, 200, "POST", `${path}/upgrade`, {
          body: { dry_run: true }
        })
        assert.deepStrictEqual(upgrade.changes, [])
        yield* expectStatus(admin, 200, "DELETE", `${path}?force=true`)
      })
    )
  })

  describe("docs/keys.md, Limit a key to some servers", () => {
    it.effect("an upgrade to another blueprint carries no override that the key may not give there", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const blueprints = ["plain", "patched", "swappy", "spy"]
        const key = yield* keyed("Operator", { ...every, blueprints, max_memory: 400 })
        const limits = { memory_limit: 50 }
        const carried = [
          ["spy", "plain", { software: "spy", limits }, 403, "overrides.software"],
          ["swappy", "plain", { limits: { ...limits, swap: 4096 } }, 403, "limits.swap"],
          ["swappy", "plain", { limits: { ...limits, oom_disabled: true } }, 403, "limits.oom_disabled"],
          [
            "patched",
            "plain",
            { configs: { "game.properties": { parser: "properties", find: { motd: "x" } } }, limits },
            403,
            "game.properties"
          ],
          ["plain", "patched", { env: { MOTD: "x" }, limits }, 422, "declares MOTD"]
        ] as const
        for (const [from, to, overrides, status, part] of carried) {
          const { json } = yield* expectStatus(key, 202, "POST", "/api/servers", {
            body: { blueprint_id: from, overrides }
          })
          for (const dry_run of [true, false]) {
            const body = { blueprint_id: to, dry_run }
            const answer = yield* key.request("POST", `/api/servers/${json.id}/upgrade`, { body })
            assert.include(assertError(answer, status).detail, part)
          }
          const { json: kept } = yield* expectStatus(admin, 200, "GET", `/api/servers/${json.id}`)
          assert.strictEqual(kept.blueprint_id, from)
          yield* expectStatus(admin, 200, "DELETE", `/api/servers/${json.id}?force=true`)
        }
      })
    )

    it.effect(
      "overrides of an administrator stay while they mean the same, also in rollouts and reinstallations",
      () =>
        Effect.gen(function* () {
          const admin = yield* Muster
          const key = yield* keyed("Operator", { ...every, blueprints: ["plain", "patched"] })
          const overrides = {
            software: "spy",
            env: { UNDECLARED: "1" },
            configs: { "server.sh": { parser: "file", find: { a: "b" } } }
          }
          const id = yield* installed(admin, "plain", { overrides })
          const path = `/api/servers/${id}`
          for (const dry_run of [true, false])
            yield* expectStatus(key, dry_run ? 200 : 202, "POST", `${path}/upgrade`, { body: { dry_run } })
          const selector = { ids: [id] }
          yield* expectStatus(key, 200, "POST", "/api/rollouts?dry_run=true", { body: { selector } })
          yield* expectStatus(key, 201, "POST", "/api/rollouts", { body: { selector } })
          yield* expectStatus(key, 202, "POST", `${path}/reinstall`, { body: { definition: "today" } })
          assertError(
            yield* key.request("POST", `${path}/upgrade`, { body: { blueprint_id: "patched" } }),
            422,
            /declares UNDECLARED$/
          )
          yield* expectStatus(admin, 200, "PATCH", path, { body: { overrides: { env: null } } })
          assertError(
            yield* key.request("POST", `${path}/upgrade`, { body: { blueprint_id: "patched" } }),
            403,
            'the API key lacks: change: it is limited to blueprints, and overrides.software, overrides.configs["server.sh"] would run other code than blueprint patched'
          )
          yield* expectStatus(admin, 200, "DELETE", `${path}?force=true`)
        })
    )
  })
})

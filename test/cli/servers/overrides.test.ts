import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { labelsOf, overridesChangeOf, overridesOf } from "../../../src/cli/servers/patch.ts"

const read = (...set: ReadonlyArray<string>) => overridesOf({ set, env: [] })

describe("spec 8.4: --set and --env", () => {
  it.effect("a path names a field; values have the type of the field", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(
        yield* read("limits.memory_limit=512", "save=true", "version=1.21", "limits.threads=2", "env.PORT=7"),
        { limits: { memory_limit: 512, threads: "2" }, save: true, version: "1.21", env: { PORT: "7" } }
      )
    })
  )

  it.effect("brackets hold the name of a config file; --env adds variables", () =>
    Effect.gen(function* () {
      const given = { set: ["configs[server.properties].find.motd=a=b"], env: ["MOTD=x=y"] }
      assert.deepStrictEqual(yield* overridesOf(given), {
        configs: { "server.properties": { find: { motd: "a=b" } } },
        env: { MOTD: "x=y" }
      })
    })
  )

  it.effect("--unset removes an override; without flags there are no overrides", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* overridesChangeOf({ set: [], env: [], unset: ["limits.swap"] }), {
        limits: { swap: null }
      })
      assert.isUndefined(yield* overridesOf({ set: [], env: [] }))
    })
  )

  it.effect("an unknown field, a wrong value and a malformed path are wrong usage", () =>
    Effect.gen(function* () {
      for (const [text, expected] of [
        [
          "limits.nothing=1",
          /^--set limits\.nothing: this is no override\. Overrides are save, limits\.NAME \(memory_limit, .*\), configs\[FILE\]\.find\.KEY, software, /
        ],
        [
          "limits.memory=1",
          /^--set limits\.memory: this is no override; did you mean limits\.memory_limit\?$/
        ],
        ["configs.server.properties.find.motd=a", /: expected configs\[FILE\]\.find\.KEY, with the file/],
        [
          "memory_limit=4096",
          /^--set memory_limit: this is no override; did you mean limits\.memory_limit\?$/
        ],
        ["server.save=true", /^--set server\.save: this is no override; did you mean save\?$/],
        ["limits.memory_limit=4G", /limits\.memory_limit: expected a number of MiB \(4096 here\)\.$/],
        ["restart.delay=5m", /restart\.delay: expected a number of seconds \(300 here\)\.$/],
        ["save=yes", /^the overrides are invalid: save: expected true or false\.$/],
        ["limits=5", /^the overrides are invalid: limits: expected an object/],
        [
          "limits.memory_limit=",
          /^the overrides are invalid: limits\.memory_limit: expected a number of MiB; .*--unset/
        ],
        [
          "configs[server.properties].fnd.motd=a",
          /^--set configs\[server\.properties\]\.fnd\.motd: expected configs\[FILE\]\.find\.KEY, with the file in brackets/
        ],
        ["labels.team=a", /^--set labels\.team: this is no override: use --label KEY=VALUE\.$/],
        ["expires_in=60", /^--set expires_in: this is no override: use --expires\.$/],
        ["limits.memory_limit=many", /^the overrides are invalid: limits\.memory_limit: expected .*number/],
        [
          "limits.memory_limit=99999999",
          /^the overrides are invalid: limits\.memory_limit: expected a value between 0 and 67108864\.$/
        ],
        ["limits..swap=1", /expected a path/],
        ["__proto__.x=1", /^--set __proto__\.x: this is no override/],
        ["save", /expected key=value/],
        ["=1", /expected key=value/]
      ] as const) {
        const error = yield* Effect.flip(read(text))
        assert.strictEqual(error.status, "usage", text)
        assert.match(error.message, expected)
        assert.notInclude(error.message, "\n")
      }
      const label = yield* Effect.flip(labelsOf(["team=a", "a b=c"]))
      assert.match(label.message, /^--label a b: expected a label key \(/)
      const variable = yield* Effect.flip(overridesOf({ set: [], env: ["1=2"] }))
      assert.match(variable.message, /^--env 1: expected the name of an environment variable\.$/)
      const error = yield* Effect.flip(read("limits=1", "limits.swap=1"))
      assert.match(error.message, /expected a path/)
    })
  )
})

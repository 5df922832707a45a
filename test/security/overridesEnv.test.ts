import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { assertError } from "../controlPlane/http/support/http.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, logsHave } from "../support/servers.ts"

/** Prints the variables that a caller tried to set. */
const game = softwareFile("game", {
  invocation: `sh -c 'echo "java=$JAVA_TOOL_OPTIONS ld=$LD_PRELOAD node=$NODE_OPTIONS"; echo ready; read -r line'`
})

const start = Effect.gen(function* () {
  const { env } = yield* definitions({
    software: { "game.yml": game },
    blueprints: {
      "closed.yml": blueprintFile("closed", "game", { rest: { state: { env: { LD_PRELOAD: "" } } } }),
      "java.yml": JSON.stringify({ mixin: { id: "java" }, state: { "env-allow": ["JAVA_TOOL_OPTIONS"] } }),
      "open.yml": blueprintFile("open", "game", {
        rest: { includes: ["java"], state: { "env-allow": ["NODE_*", "M*"] } }
      })
    }
  })
  return yield* startService({ env })
})

describe("spec 3: overrides.env: variables that change how programs run", () => {
  it.live(
    "such a variable is 422 with field, reason and hint unless `env-allow` lists it; MUSTER_* is always 422",
    () =>
      Effect.gen(function* () {
        const api = yield* start
        const create = (blueprint_id: string, env: Record<string, string>) => ({
          body: { blueprint_id, overrides: { env }, start: true }
        })
        const refused = Effect.fnUntraced(function* (
          blueprint: string,
          env: Record<string, string>,
          detail: string
        ) {
          const answer = yield* expectStatus(api, 422, "POST", "/api/servers", create(blueprint, env))
          assertError(answer, 422)
          assert.include(answer.json.detail, detail)
          return String(answer.json.hint)
        })
        for (const name of [
          "LD_PRELOAD",
          "NODE_OPTIONS",
          "BASH_ENV",
          "ENV",
          "PATH",
          "PYTHONPATH",
          "PERL5OPT"
        ]) {
          const hint = yield* refused("closed", { FINE: "1", [name]: "x" }, `overrides.env.${name}: refused`)
          assert.include(hint, `list ${name} in \`state.env-allow\` of blueprint closed`)
        }
        for (const name of ["RUBYOPT", "_JAVA_OPTIONS", "GIT_SSH_COMMAND"]) {
          yield* refused("open", { [name]: "x" }, `overrides.env.${name}: refused`)
        }
        for (const name of ["MUSTER_NODE", "MUSTER_SERVER", "MUSTER_X"]) {
          const hint = yield* refused("open", { [name]: "x" }, `${name}: refused: the variables MUSTER_*`)
          assert.strictEqual(hint, "Use another name.")
        }
        const many = Object.fromEntries(Array.from({ length: 256 }, (_, index) => [`A${index}`, "1"]))
        yield* refused("closed", many, "expected at most 256 variables, found 257")
        assert.strictEqual((yield* expectStatus(api, 200, "GET", "/api/servers")).json.length, 0)

        const env = { JAVA_TOOL_OPTIONS: "-Xmx1G", NODE_OPTIONS: "--no-warnings" }
        const made = yield* expectStatus(api, 202, "POST", "/api/servers", create("open", env))
        yield* logsHave(api, made.json.id, "java=-Xmx1G ld= node=--no-warnings")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${made.json.id}`)
      })
  )
})

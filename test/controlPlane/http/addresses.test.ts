import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus, logsHave, running } from "../../support/servers.ts"
import { assertError, options, removed } from "./support/http.ts"

const definitions = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": `echo "named $SERVER_PORT_GAME $SERVER_PORT_QUERY $QUERY"\n${consoleServer}` }
    })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "named.yml": blueprintFile("named", "game", {
      server: { ports: ["game", "query"] },
      rest: { state: { env: { QUERY: "{{server.build.ports.query}}" } } }
    }),
    "counted.yml": blueprintFile("counted", "game", { server: { ports: 2 } })
  }
}
const env = { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26350-26399=play.example.com" }

layer(Muster.layer(definitions, env), options)("addresses", (it) => {
  const read = Effect.fnUntraced(function* (path: string) {
    return (yield* expectStatus(yield* Muster, 200, "GET", path)).json
  })

  describe("application API 2.3, allocations", () => {
    it.effect("the alias of the node's address is in the allocations of its servers", () =>
      Effect.gen(function* () {
        const id = yield* create(yield* Muster, "kept")
        const { allocations } = yield* read(`/api/servers/${id}`)
        const { port } = allocations.default
        assert.deepStrictEqual(allocations, {
          force_outgoing_ip: false,
          default: { ip: "127.0.0.1", port },
          alias: "play.example.com",
          mappings: { "127.0.0.1": [port] }
        })
        yield* removed(id)
      })
    )
  })

  describe("spec 2.5: ports", () => {
    it.effect("include=ports has the names; the server has them as variables", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "named")
        const { allocations, ports } = yield* read(`/api/servers/${id}?include=ports`)
        const [game, query] = allocations.mappings["127.0.0.1"]
        assert.deepStrictEqual(ports, {
          game: { ip: "127.0.0.1", port: game },
          query: { ip: "127.0.0.1", port: query }
        })
        yield* logsHave(api, id, `named ${game} ${query} ${query}`)
        yield* removed(id)
      })
    )

    it.effect("without names, include=ports has the default port as game", () =>
      Effect.gen(function* () {
        const id = yield* create(yield* Muster, "counted")
        const { allocations, ports } = yield* read(`/api/servers/${id}?include=ports`)
        assert.deepStrictEqual(ports, { game: allocations.default })
        yield* removed(id)
      })
    )

    it.effect("overrides with the name of another port are 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const blueprint_id of ["named", "kept"]) {
          const overrides = { env: { A: "{{server.build.ports.rcon}}" } }
          const answer = yield* api.request("POST", "/api/servers", { body: { blueprint_id, overrides } })
          assertError(
            answer,
            422,
            /^placeholder \{\{server.build.ports.rcon\}\} names no port of the server: /
          )
        }
        assert.deepStrictEqual(yield* read("/api/servers"), [])
      })
    )
  })
})

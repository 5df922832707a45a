import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { blueprintFile, type Definitions, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { endLeftovers } from "../../support/processes.ts"
import { type Service, startService } from "../../support/Service.ts"
import { becomes, expectStatus, installed, logsHave, powered, running } from "../../support/servers.ts"
import { fileOf } from "./setup.ts"

/** Prints the version of its base, a variable and a config file. */
const server = (version: string) => `echo base ${version}, motd $MOTD, $(cat game.properties)
echo ready
while read -r what arg; do test "$what" = stop && exit 0; done`

const software = (script = "") =>
  softwareFile("game", {
    install: {
      script: `cat > server.sh <<END_OF_SERVER
${server("$VERSION").replaceAll("$MOTD", "\\$MOTD").replaceAll("$(cat", "\\$(cat").replaceAll('"$what"', '"\\$what"')}
END_OF_SERVER
printf 'motd=none\\n' > game.properties
echo "$VERSION" > shared.txt
echo "$VERSION" > edited.txt
echo "$VERSION" > removed.txt
test "$VERSION" = 1.0 && echo old > only-old.txt || echo new > only-new.txt
${script}`
    },
    extra: {
      mappings: undefined,
      configs: { "game.properties": { parser: "properties", find: { motd: "from software" } } }
    }
  })

const blueprint = (version: string, more: Readonly<Record<string, unknown>> = {}) =>
  blueprintFile("kept", "game", { server: { version, ...more }, rest: { state: { env: { MOTD: "one" } } } })

class Scene extends Context.Service<Scene, Service & Definitions>()("test/Scene") {
  static readonly layer = (env: Record<string, string>) =>
    Layer.effect(
      Scene,
      Effect.gen(function* () {
        const folders = yield* definitions({
          software: {
            "game.yml": software(),
            "boxed.yml": softwareFile("boxed", { extra: { runtimes: ["docker"] } })
          },
          blueprints: {
            "kept.yml": blueprint("1.0"),
            "boxed.yml": blueprintFile("boxed", "boxed", { server: { image: "example/boxed" } }),
            "other.yml": blueprintFile("other", "game", { server: { limits: { memory_limit: 32 } } })
          }
        })
        const service = yield* startService({
          env: {
            ...folders.env,
            MUSTER_EMBEDDED_MEMORY: "1GiB",
            MUSTER_DOCKER_SOCKET: "/nowhere/docker.sock",
            ...env
          }
        })
        yield* Effect.addFinalizer(() => endLeftovers(service.dataDir))
        return { ...service, ...folders }
      })
    )
}

const reload = Effect.fnUntraced(function* (files: { software?: string; blueprint?: string }) {
  const api = yield* Scene
  if (files.software !== undefined) writeFileSync(join(api.software, "game.yml"), files.software)
  if (files.blueprint !== undefined) writeFileSync(join(api.blueprints, "kept.yml"), files.blueprint)
  yield* expectStatus(api, 200, "POST", "/api/software/reload")
  yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
})

const definitionOf = Effect.fnUntraced(function* (id: string) {
  const api = yield* Scene
  return (yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=definition,status,limits`)).json
})

const patch = Effect.fnUntraced(function* (id: string, overrides: unknown) {
  const api = yield* Scene
  return (yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { overrides } })).json
})

const upgrade = Effect.fnUntraced(function* (id: string, body: unknown = {}, status = 202) {
  const api = yield* Scene
  return (yield* expectStatus(api, status, "POST", `/api/servers/${id}/upgrade`, { body })).json
})

const restart = Effect.fnUntraced(function* (id: string, line: string) {
  const api = yield* Scene
  yield* powered(api, id, "restart")
  yield* logsHave(api, id, line)
  yield* becomes(api, id, "running")
})

const textOf = (api: Service, id: string, name: string) => {
  const path = fileOf(api, id, name)
  return existsSync(path) ? readFileSync(path, "utf8").trim() : undefined
}

for (const storage of ["auto", "copy"]) {
  layer(Scene.layer({ MUSTER_INSTANCE_FILES: storage }), {
    excludeTestServices: true,
    timeout: "60 seconds"
  })(`spec 3.12 (instance files: ${storage})`, (it) => {
    describe("PATCH overrides", () => {
      it.effect("a server that is up gets the change at its next start; until then it is pending", () =>
        Effect.gen(function* () {
          const api = yield* Scene
          const id = yield* running(api, "kept")
          yield* logsHave(api, id, "base 1.0, motd one, motd=from software")
          const configs = { "game.properties": { find: { motd: "mine" } } }
          const changed = yield* patch(id, { limits: { memory_limit: 96 }, env: { MOTD: "two" }, configs })
          assert.deepStrictEqual(changed.pending, [
            'configs["game.properties"].find.motd',
            "env.MOTD",
            "limits.memory_limit"
          ])
          assert.deepStrictEqual(changed.overrides, {
            limits: { memory_limit: 96 },
            env: { MOTD: "two" },
            configs
          })
          assert.strictEqual((yield* definitionOf(id)).limits.memory_limit, 96)
          yield* restart(id, "base 1.0, motd two, motd=mine")
          assert.deepStrictEqual((yield* definitionOf(id)).pending, [])
          const removed = yield* patch(id, { limits: null, env: { MOTD: null }, configs: null })
          assert.isUndefined(removed.overrides)
          assert.strictEqual((yield* definitionOf(id)).limits.memory_limit, 64)
          yield* restart(id, "base 1.0, motd one, motd=from software")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        })
      )

      it.effect("limits that do not fit are 503, overrides that do not fit 422, and change nothing", () =>
        Effect.gen(function* () {
          const api = yield* Scene
          const id = yield* installed(api, "kept")
          const before = yield* definitionOf(id)
          const send = (overrides: unknown, status: number) =>
            expectStatus(api, status, "PATCH", `/api/servers/${id}`, { body: { overrides, name: "x" } })
          const full = yield* send({ limits: { memory_limit: 1_000_000 } }, 503)
          assert.match(full.json.detail, /the limits do not fit on node .*: the node is without .*/)
          for (const overrides of [{ software: "nope" }, { env: { LD_PRELOAD: "x" } }, null, { limit: {} }]) {
            yield* send(overrides, 422)
          }
          assert.deepStrictEqual(yield* definitionOf(id), before)
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        })
      )
    })

    describe("POST .../upgrade", () => {
      it.effect("a new version replaces the files of its base; what the server has written stays", () =>
        Effect.gen(function* () {
          const api = yield* Scene
          const id = yield* running(api, "kept")
          yield* reload({ blueprint: blueprint("2.0") })
          const { definition } = yield* definitionOf(id)
          assert.isTrue(definition.outdated)
          const plan = yield* upgrade(id, { dry_run: true }, 200)
          assert.deepStrictEqual(plan.changes, [
            { path: "version", from: "1.0", to: "2.0", needs: "installation" }
          ])
          assert.deepStrictEqual((yield* definitionOf(id)).definition, definition)
          writeFileSync(fileOf(api, id, "edited.txt"), "edited")
          writeFileSync(fileOf(api, id, "world.txt"), "the world")
          yield* Effect.sync(() => writeFileSync(fileOf(api, id, "removed.txt"), ""))
          assert.deepStrictEqual(yield* upgrade(id), plan)
          assert.deepStrictEqual((yield* definitionOf(id)).pending, ["version"])
          yield* restart(id, "base 2.0, motd one, motd=from software")
          const after = yield* definitionOf(id)
          assert.deepStrictEqual(after.definition, { revision: plan.revision, outdated: false })
          assert.deepStrictEqual(after.pending, [])
          const texts = [
            "shared.txt",
            "edited.txt",
            "world.txt",
            "removed.txt",
            "only-old.txt",
            "only-new.txt"
          ]
          assert.deepStrictEqual(
            texts.map((name) => textOf(api, id, name)),
            ["2.0", "edited", "the world", "", undefined, "new"]
          )
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          yield* reload({ blueprint: blueprint("1.0") })
        })
      )

      it.effect("another blueprint_id takes its definition; an unknown one is 404", () =>
        Effect.gen(function* () {
          const api = yield* Scene
          const id = yield* installed(api, "kept")
          yield* upgrade(id, { blueprint_id: "nope" }, 404)
          yield* upgrade(id, { blueprint_id: "other" })
          const shown = yield* definitionOf(id)
          assert.strictEqual(shown.blueprint_id, "other")
          assert.strictEqual(shown.limits.memory_limit, 32)
          const listed = yield* expectStatus(api, 200, "GET", "/api/servers?blueprint_id=other&ids_only=true")
          assert.deepStrictEqual(listed.json, [id])
          yield* powered(api, id, "start")
          yield* logsHave(api, id, "base 1.0, motd , motd=from software")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        })
      )

      it.effect("software that the node cannot run is 503, as at a creation, and changes nothing", () =>
        Effect.gen(function* () {
          const api = yield* Scene
          const id = yield* installed(api, "kept")
          const before = yield* definitionOf(id)
          const node_id = before.node_id
          const created = yield* expectStatus(api, 503, "POST", "/api/servers", {
            body: { blueprint_id: "boxed", node_id }
          })
          const refused = yield* upgrade(id, { blueprint_id: "boxed" }, 503)
          assert.strictEqual(refused.detail, created.json.detail)
          assert.match(refused.hint, /It offers process, the software needs docker; choose other software/)
          assert.deepStrictEqual(yield* definitionOf(id), before)
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        })
      )

      it.effect(
        "if the new version cannot be installed, the files stay, and the earlier definition works",
        () =>
          Effect.gen(function* () {
            const api = yield* Scene
            const id = yield* installed(api, "kept")
            writeFileSync(fileOf(api, id, "world.txt"), "the world")
            yield* reload({
              software: software('test "$VERSION" = 1.0 || exit 7'),
              blueprint: blueprint("3.0")
            })
            yield* upgrade(id)
            const failed = yield* eventually(
              api.request("GET", `/api/servers/${id}/install`),
              (answer) => answer.json.phase === "failed"
            )
            assert.match(failed.json.failure_reason, /install script exited with 7/)
            assert.strictEqual(textOf(api, id, "shared.txt"), "1.0")
            assert.strictEqual(textOf(api, id, "world.txt"), "the world")
            yield* reload({ software: software(), blueprint: blueprint("1.0") })
            yield* upgrade(id)
            yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=installed`)
            yield* powered(api, id, "start")
            yield* logsHave(api, id, "base 1.0, motd one, motd=from software")
            yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          })
      )
    })

    describe("POST .../reinstall", () => {
      it.effect("runs the corrected script; `kept` repeats the definition of the server", () =>
        Effect.gen(function* () {
          const api = yield* Scene
          const id = yield* installed(api, "kept")
          yield* reload({ software: software("echo corrected > corrected.txt") })
          const reinstall = (body?: unknown) =>
            Effect.andThen(
              expectStatus(
                api,
                202,
                "POST",
                `/api/servers/${id}/reinstall`,
                body === undefined ? {} : { body }
              ),
              expectStatus(api, 200, "GET", `/api/servers/${id}?wait=installed`)
            )
          yield* reinstall({ definition: "kept" })
          assert.isUndefined(textOf(api, id, "corrected.txt"))
          yield* reinstall()
          assert.strictEqual(textOf(api, id, "corrected.txt"), "corrected")
          const fresh = yield* installed(api, "kept")
          assert.strictEqual(textOf(api, fresh, "corrected.txt"), "corrected")
          yield* expectStatus(api, 422, "POST", `/api/servers/${id}/reinstall`, { body: { definition: "x" } })
          yield* reload({ software: software() })
          for (const one of [id, fresh]) yield* expectStatus(api, 200, "DELETE", `/api/servers/${one}`)
        })
      )
    })
  })
}

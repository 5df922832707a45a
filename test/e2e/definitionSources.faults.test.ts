import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { MusterClient } from "../../src/client/index.ts"
import { parseSources } from "../../src/controlPlane/blueprints/sources/parseSources.ts"
import { silentServer } from "../controlPlane/blueprints/sources/support.ts"
import { assertError } from "../controlPlane/http/support/http.ts"
import { checkout, npmStart } from "../support/checkout.ts"
import { startChild } from "../support/child.ts"
import { muster } from "../support/command.ts"
import { blueprintFile } from "../support/definitions.ts"
import { printed } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { startService } from "../support/Service.ts"
import { expectStatus } from "../support/servers.ts"
import { idsOf, sourceSetup } from "../support/sources.ts"

describe("sources: the start", () => {
  it.live("an unusable file stops the start with file, line, column and reason", () =>
    Effect.gen(function* () {
      const { env, root, list } = yield* sourceSetup
      const base = {
        ...env,
        MUSTER_DATA_DIR: join(root, "data"),
        MUSTER_PORT: "0",
        MUSTER_LOG_LEVEL: "error"
      }
      const missing = yield* muster(["serve"], base)
      assert.deepStrictEqual(missing, {
        code: 1,
        stdout: "",
        stderr: `MUSTER_BLUEPRINT_SOURCES: ${root}/sources.yml cannot be read: it does not exist\n`
      })
      writeFileSync(join(root, "sources.yml"), "sources:\n  - { id: a, url: 'ext::sh', reff: x }\n")
      const wrong = yield* muster(["serve"], base)
      assert.strictEqual(wrong.code, 1)
      assert.deepStrictEqual(wrong.stderr.trim().split("\n"), [
        `MUSTER_BLUEPRINT_SOURCES: ${root}/sources.yml:2:19: the url \`ext::sh\`: no address that a source may have; write https://..., ssh://..., user@host:path, file:///... or an absolute path`,
        `MUSTER_BLUEPRINT_SOURCES: ${root}/sources.yml:2:30: unknown key \`reff\`; did you mean \`ref\`?`
      ])
      list()
      const api = yield* startService({ env })
      assert.deepStrictEqual(yield* idsOf(api), ["own"])
      assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/definitions/sources")).json, [])
    })
  )

  it.live("a git server that does not respond delays the start by its timeout at most", () =>
    Effect.gen(function* () {
      const { env, list, repository } = yield* sourceSetup
      const silent = yield* silentServer
      repository.commit({ "a.yml": blueprintFile("a", "game") })
      list(
        { id: "silent", url: `https://127.0.0.1:${silent.port}/r.git`, timeout: 2 },
        { id: "s", url: repository.folder }
      )
      const api = yield* startService({ env })
      assert.deepStrictEqual(yield* idsOf(api), ["a", "own"])
      assert.match(api.output(), /source silent: not done within 2 s; what it has put in place before stays/)
      const answer = yield* api.request("POST", "/api/blueprints/reload")
      assertError(answer, 502, /^source silent: not done within 2 s\nEverything else/)
    })
  )
})

describe("sources: POST /api/blueprints/reload", () => {
  it.live("a reload is 200 with an empty body, 422 for invalid files, 502 for a failing source", () =>
    Effect.gen(function* () {
      const { env, folders, list, repository, root } = yield* sourceSetup
      const first = repository.commit({ "a.yml": blueprintFile("a", "game") })
      list({ id: "s", url: repository.folder, destination: "teams/s" })
      const api = yield* startService({ env })
      const reload = api.request("POST", "/api/blueprints/reload")
      const sources = Effect.map(
        expectStatus(api, 200, "GET", "/api/definitions/sources"),
        ({ json }) => json
      )
      assert.deepStrictEqual(yield* idsOf(api), ["a", "own"])
      assert.strictEqual((yield* sources)[0].commit, first)

      repository.commit({ "b.yml": blueprintFile("b", "nope", { rest: { world: {} } }) })
      const done = yield* reload
      assert.deepStrictEqual([done.status, done.text], [200, ""])
      assert.deepStrictEqual(yield* idsOf(api), ["b", "own"])
      const warnings = yield* expectStatus(api, 200, "GET", "/api/definitions/warnings")
      assert.deepStrictEqual(warnings.json, [
        { folder: "blueprints", detail: "teams/s/b.yml: ignored keys: world" },
        { folder: "blueprints", detail: "teams/s/b.yml: software nope is not defined" }
      ])

      repository.commit({ "c.yml": "blueprint: { id: C }\n" })
      assertError(yield* reload, 422, /^teams\/s\/c\.yml:1:18: expected an id/)
      assert.deepStrictEqual(yield* idsOf(api), ["b", "own"])
      const refused = yield* expectStatus(api, 200, "GET", "/api/definitions/warnings")
      assert.match(
        refused.json[0].detail,
        /^the last reload was refused: teams\/s\/c\.yml:1:18: expected an id/
      )
      assert.match(
        refused.json.at(-1).detail,
        /^source s: its new files are not accepted: teams\/s\/c\.yml:1:18: expected an id.*; correct the cause, then reload$/
      )
      assert.deepStrictEqual(
        readdirSync(join(folders.blueprints, "teams/s")).filter((name) => name !== ".source.json"),
        ["b.yml"]
      )

      const good = repository.commit({ "d.yml": blueprintFile("d", "game") })
      renameSync(repository.folder, join(root, "away"))
      writeFileSync(join(folders.blueprints, "new.yml"), blueprintFile("new", "game"))
      const failed = assertError(yield* reload, 502)
      assert.deepStrictEqual(failed.detail?.split("\n"), [
        "source s: no repository at the path that its `url` names",
        "Everything else in the blueprints folder was reloaded."
      ])
      assert.deepStrictEqual(yield* idsOf(api), ["b", "new", "own"])
      assert.strictEqual((yield* sources)[0].error, "no repository at the path that its `url` names")

      const client = yield* Effect.provide(
        MusterClient,
        MusterClient.layer({ baseUrl: api.url, key: Redacted.make(api.key) })
      )
      const clientError = yield* client.blueprints.reload().pipe(
        Effect.as("nothing"),
        Effect.catchTag("SourceFailed", ({ detail }) => Effect.succeed(detail))
      )
      assert.strictEqual(clientError, failed.detail)

      renameSync(join(root, "away"), repository.folder)
      assert.strictEqual((yield* reload).status, 200)
      assert.deepStrictEqual(yield* idsOf(api), ["d", "new", "own"])
      assert.deepInclude((yield* sources)[0], { id: "s", commit: good, error: null })

      writeFileSync(join(root, "sources.yml"), "sources: [{ id: s }]")
      assertError(yield* reload, 422, "sources.yml:1:11: `sources.url` is missing")
      assert.deepStrictEqual(yield* idsOf(api), ["d", "new", "own"])
    })
  )
})

describe("docs/git-sources.md", () => {
  it.live(
    "the commands work as printed",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        const script = printed("docs/git-sources.md", "castle")
        const before = script.slice(0, script.indexOf("MUSTER_BLUEPRINT_SOURCES"))
        const shell = yield* startChild(["bash", "-ec", before], { cwd: folder })
        assert.strictEqual(yield* shell.exited(), 0, shell.output())
        assert.match(script, /^MUSTER_BLUEPRINT_SOURCES=sources\.yml npm start$/m)
        const service = yield* npmStart(folder, { MUSTER_BLUEPRINT_SOURCES: "sources.yml" })
        const castle = yield* eventually(
          service.request("GET", "/api/blueprints/castle"),
          ({ status }) => status === 200
        )
        assert.strictEqual(castle.json.server.software, "demo")
        assert.include(readFileSync(join(folder, "blueprints/worlds/castle.yml"), "utf8"), "id: castle")
      }),
    60_000
  )

  it("every key of a source is documented", () => {
    const example = printed("docs/git-sources.md", "fields")
    const { problems, sources } = parseSources("sources.yml", new TextEncoder().encode(example))
    assert.deepStrictEqual(problems, [])
    assert.deepStrictEqual(sources[0], {
      id: "team-a",
      kind: "blueprints",
      address: { url: "https://git.example.com/team-a/worlds.git", protocol: "https", user: undefined },
      ref: "main",
      path: "game/blueprints",
      destination: "teams/a",
      token: { env: "TEAM_A_TOKEN" },
      ca_file: "/etc/ssl/private-ca.pem",
      timeout: 60
    })
  })
})

import { readdirSync, readFileSync, readlinkSync, renameSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Schedule } from "effect"
import { parseSources } from "../../src/blueprints/sources/parseSources.ts"
import { MusterClient } from "../../src/client/index.ts"
import { makeRepository, silentServer } from "../blueprints/sources/support.ts"
import { assertError, noNode } from "../http/support/http.ts"
import { checkout, npmStart } from "../support/checkout.ts"
import { startChild } from "../support/child.ts"
import { muster } from "../support/command.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { readmeBlocks } from "../support/readme.ts"
import { startService } from "../support/Service.ts"
import { expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** Folders, a repository, and the settings of a service that syncs it. */
const world = Effect.gen(function* () {
  const root = yield* temporaryFolder
  const folders = yield* definitions({
    blueprints: { "own.yml": blueprintFile("own", "game") },
    software: { "game.yml": softwareFile("game") }
  })
  const repository = makeRepository(join(root, "repository"))
  const list = (...sources: ReadonlyArray<Readonly<Record<string, unknown>>>) =>
    writeFileSync(join(root, "sources.yml"), JSON.stringify({ sources }))
  const env = { ...noNode, ...folders.env, MUSTER_BLUEPRINT_SOURCES: join(root, "sources.yml") }
  return { root, folders, repository, list, env, dataDir: join(root, "data") }
})

const idsOf = (api: Effect.Success<ReturnType<typeof startService>>) =>
  Effect.map(
    expectStatus(api, 200, "GET", "/api/blueprints?limit=1000"),
    ({ json }): ReadonlyArray<string> =>
      json.data.map((it: { readonly metadata: { readonly id: string } }) => it.metadata.id)
  )

/** Whether it is so; what goes away while it is looked at is not. */
const seenNow = (look: () => boolean): boolean => {
  try {
    return look()
  } catch {
    return false
  }
}

describe("sources: the start", () => {
  it.live("stops where the file cannot be used, and names file, line, column and reason", () =>
    Effect.gen(function* () {
      const { env, root, list } = yield* world
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

  it.live("is not held up by a server that says nothing for longer than its timeout", () =>
    Effect.gen(function* () {
      const { env, list, repository } = yield* world
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
  it.live("200 with an empty body, 422 for invalid files, 502 for a source that fails", () =>
    Effect.gen(function* () {
      const { env, folders, list, repository, root } = yield* world
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
        { folder: "blueprints", detail: "teams/s/b.yml: not acted on: world" },
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
        /^source s: its new files are not taken: teams\/s\/c\.yml:1:18: expected an id.*; correct the cause, then reload$/
      )
      assert.deepStrictEqual(readdirSync(join(folders.blueprints, "teams/s")), ["b.yml"])

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
      const told = yield* client.blueprints.reload().pipe(
        Effect.as("nothing"),
        Effect.catchTag("SourceFailed", ({ detail }) => Effect.succeed(detail))
      )
      assert.strictEqual(told, failed.detail)

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

describe("sources: kill -9 in the middle of a reload", () => {
  it.live(
    "leaves the old set or the new one, and nothing that hinders the next sync",
    () =>
      Effect.gen(function* () {
        const { dataDir, env, folders, list, repository, root } = yield* world
        const count = 300
        const generation = (n: number) =>
          Object.fromEntries(
            Array.from({ length: count }, (_, i) => [
              `d${i % 7}/b${i}.yml`,
              blueprintFile(`g${n}-${i}`, "game")
            ])
          )
        const repositoryCache = join(dataDir, "sources/blueprints/s")
        const states = () => {
          const hidden = join(folders.blueprints, ".muster-sources")
          const owner = join(hidden, readdirSync(hidden)[0] ?? "")
          return readdirSync(owner).map((name) => join(owner, name))
        }
        const files = () =>
          states().reduce((sum, state) => sum + readdirSync(state, { recursive: true }).length, 0)
        const whole = count + 7
        const place = () => readlinkSync(join(folders.blueprints, "s"))
        /** Moments of a reload, as they can be seen from outside. */
        const moments: ReadonlyArray<(before: string) => boolean> = [
          () => readdirSync(repositoryCache).some((name) => name.startsWith("work-")),
          () => states().length > 1,
          () => files() > whole + 20,
          () => files() > whole + 200,
          () => files() === 2 * whole,
          (before) => place() !== before,
          (before) => place() !== before && states().length === 1
        ]
        /** Which generation is in place: whole, and only one. */
        const inPlace = () => {
          const folder = join(folders.blueprints, "s")
          const texts = readdirSync(folder, { recursive: true, encoding: "utf8" })
            .filter((name) => name.endsWith(".yml"))
            .map((name) => /g(\d+)-/.exec(readFileSync(join(folder, name), "utf8"))?.[1])
          assert.lengthOf(texts, count)
          assert.strictEqual(new Set(texts).size, 1)
          return Number(texts[0])
        }
        list({ id: "s", url: repository.folder })
        repository.commit(generation(0))
        for (const [round, moment] of moments.entries()) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              // Whatever the round before has left: this start syncs what is new.
              const api = yield* startService({ env, dataDir })
              assert.strictEqual(inPlace(), round)
              const before = place()
              repository.commit(generation(round + 1))
              const seen = Effect.sync(() => seenNow(() => moment(before))).pipe(
                Effect.repeat({ until: (it) => it, schedule: Schedule.spaced("1 millis") })
              )
              yield* Effect.raceFirst(seen, Effect.ignore(api.request("POST", "/api/blueprints/reload")))
              yield* api.kill("SIGKILL")
              assert.include([round, round + 1], inPlace())
            })
          )
        }
        // Nothing to fetch from: what the last one has left serves.
        renameSync(repository.folder, join(root, "away"))
        const api = yield* startService({ env, dataDir })
        const serving = (yield* idsOf(api)).filter((id) => id !== "own")
        assert.lengthOf(serving, count)
        assert.isTrue(serving.every((id) => id.startsWith(`g${inPlace()}-`)))
        assert.lengthOf(states(), 1)
        assert.deepStrictEqual(readdirSync(repositoryCache), [])
        yield* api.kill("SIGKILL")

        const unlisted = yield* startService({ env: { ...env, MUSTER_BLUEPRINT_SOURCES: "" }, dataDir })
        assert.lengthOf(yield* idsOf(unlisted), count + 1)
        assert.match(
          unlisted.output(),
          /MUSTER_BLUEPRINT_SOURCES is not set; what sources have put in place stays as it is: s \(blueprints\)/
        )
      }),
    300_000
  )
})

describe("README, Definitions from git", () => {
  const section = { from: "## Definitions from git", to: "\n## " }

  it.live(
    "works as printed",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        const [script = "", ...more] = readmeBlocks("sh", section)
        assert.deepStrictEqual(more, [])
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

  it("prints every key of a source", () => {
    const [example = "", ...more] = readmeBlocks("yaml", section)
    assert.deepStrictEqual(more, [])
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

import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { NodeId } from "../../src/contract/domain/Id.ts"
import { makeTokenSeal } from "../../src/controlPlane/nodes/nodeWrites.ts"
import { muster } from "../support/command.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeIs, nodeKey } from "../support/nodes.ts"
import { newPostgresDatabase } from "../support/postgresDatabase.ts"
import { startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { registration } from "../support/samples.ts"
import { becomes, expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** Every file below a folder that contains one of the texts. */
const holding = (folder: string, texts: ReadonlyArray<string>) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => {
    const path = join(folder, name)
    if (!statSync(path).isFile()) return false
    const content = readFileSync(path, "latin1")
    return texts.some((text) => content.includes(text))
  })

const succeeds = (...[args, env]: Parameters<typeof muster>) =>
  Effect.tap(muster(args, env), ({ code, stderr }) => Effect.sync(() => assert.strictEqual(code, 0, stderr)))

describe("tokens of nodes: backups", () => {
  it.live("no token is in the database, its log, a backup or a copy", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const api = yield* startService({ dataDir, env: alone })
      const { key } = yield* nodeKey(api)
      const register = Effect.gen(function* () {
        const body = { ...registration("n1"), url: "http://127.0.0.1:1" }
        // A node may register once a second.
        const answer = yield* eventually(
          api.request("POST", "/api/nodes/n1/register", { key, body }),
          ({ status }) => status !== 429
        )
        assert.strictEqual(answer.status, 200, answer.text)
        return String(answer.json.token)
      })
      // Each token replaces the previous one.
      const tokens = yield* Effect.forEach([1, 2, 3], () => register)
      const env = { MUSTER_DATA_DIR: dataDir }
      const backup = join(dataDir, "backup.db")
      yield* succeeds(["db", "backup", backup], env)
      assert.deepStrictEqual(holding(dataDir, tokens), [])
      yield* api.kill("SIGTERM")
      const copy = `sqlite:${join(dataDir, "copy.db")}`
      const postgres = yield* newPostgresDatabase()
      yield* succeeds(["db", "copy", "--from", `sqlite:${dataDir}/muster.db`, "--to", postgres], env)
      yield* succeeds(["db", "copy", "--from", postgres, "--to", copy], env)
      assert.deepStrictEqual(holding(dataDir, tokens), [])
      // The search works: it finds the URL of the node in the same files.
      assert.includeMembers(holding(dataDir, ["http://127.0.0.1:1"]), ["muster.db", "backup.db", "copy.db"])
      // No file contains a key that opens the token.
      const sealed = /s1\.[0-9a-f]{16}\.[A-Za-z0-9_-]+/.exec(readFileSync(backup, "latin1"))?.[0] ?? ""
      const secret = readFileSync(join(dataDir, "secret.key"), "utf8").trim()
      assert.strictEqual(makeTokenSeal(Buffer.from(secret)).open(NodeId.make("n1"), sealed), tokens.at(-1))
      assert.deepStrictEqual(holding(dataDir, [secret]), ["secret.key"])
    }).pipe(Effect.scoped)
  )

  it.live("the file of the secret has mode 600; the error for an unusable file names it", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const path = join(dataDir, "secret.key")
      const first = yield* startService({ dataDir, env: alone })
      assert.strictEqual(statSync(path).mode & 0o777, 0o600)
      assert.isAtLeast(statSync(path).size, 32)
      const before = readFileSync(path, "utf8")
      yield* first.kill("SIGKILL")
      chmodSync(path, 0o644)
      const second = yield* startService({ dataDir, env: alone })
      assert.include(second.output(), `${path} can be read by others`)
      assert.strictEqual(readFileSync(path, "utf8"), before)
      yield* second.kill("SIGKILL")
      const env = { ...alone, MUSTER_DATA_DIR: dataDir, MUSTER_PORT: "0", MUSTER_LOG_LEVEL: "error" }
      writeFileSync(path, "short")
      const short = yield* muster(["serve"], env)
      assert.match(
        short.stderr,
        /^MUSTER_SECRET_FILE: .*secret\.key has 5 bytes, and needs 32; move it away .*\n$/
      )
      const missing = yield* muster(["serve"], { ...env, MUSTER_SECRET_FILE: join(dataDir, "none") })
      assert.match(missing.stderr, /^MUSTER_SECRET_FILE: .*none cannot be read \(ENOENT.*\)\n$/)
      assert.isFalse(existsSync(join(dataDir, "none")))
    }).pipe(Effect.scoped)
  )
})

describe("tokens of nodes: renewal", () => {
  it.live(
    "without the secret, nodes register again; tokens of connected nodes are renewed, and no call fails",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const dataDir = join(yield* temporaryFolder, "data")
        const short = { ...alone, ...env, MUSTER_NODE_TOKEN_HOURS: "0.0005" }
        const first = yield* startService({ dataDir, env: short })
        const { key } = yield* nodeKey(first)
        const port = new URL(first.url).port
        const options = {
          id: "n1",
          key,
          control: [first.url],
          ports: "31000-31099",
          heartbeat: "200 millis"
        } as const
        const node = yield* makeSimulatedNode(options)
        yield* nodeIs(first, "n1", true)
        const { id } = (yield* expectStatus(first, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept" }
        })).json
        yield* becomes(first, id, "offline")

        const before = node.registrations()
        let calls = 0
        yield* Effect.gen(function* () {
          for (const path of [`/api/servers/${id}/stats`, `/api/servers/${id}/logs`]) {
            yield* expectStatus(first, 200, "GET", path)
            calls += 1
          }
        }).pipe(Effect.repeat({ until: () => node.registrations() >= before + 4 }))
        assert.isAbove(calls, 8)
        assert.isTrue((yield* expectStatus(first, 200, "GET", "/api/nodes/n1")).json.connected)
        assert.notInclude(first.output(), "node unreachable")

        yield* first.kill("SIGKILL")
        renameSync(join(dataDir, "secret.key"), join(dataDir, "lost.key"))
        const again = yield* startService({ dataDir, env: { ...short, MUSTER_PORT: port } })
        assert.include(again.output(), "the secret is not that of the last start")
        yield* nodeIs(again, "n1", true)
        yield* expectStatus(again, 200, "GET", `/api/servers/${id}/stats`)
      }).pipe(Effect.scoped)
  )
})

import { existsSync } from "node:fs"
import { createServer } from "node:http"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { nodeSettings } from "../../src/shared/config/node.ts"
import { muster } from "../support/command.ts"
import { definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { type Service, startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** A control plane without an embedded node. */
class Control extends Context.Service<Control, Service>()("test/cli/Control") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const files = { software: { "game.yml": softwareFile("game") }, blueprints: {} }
      const { env } = yield* definitions(files)
      return yield* startService({ env: { ...alone, ...env } })
    })
  )
}

const MAKE = "`muster keys create --name <name>` beside the service makes one"

/** A server that answers every request with an HTML page. */
const page = Effect.acquireRelease(
  Effect.callback<{ readonly url: string; readonly close: () => void }>((resume) => {
    const server = createServer((_, response) => response.end("<html>"))
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, close: () => server.close() }))
    })
  }),
  ({ close }) => Effect.sync(close)
)

describe("muster nodes: errors", () => {
  it.live("an unreachable or foreign address is one line with the cause and the setting to check", () =>
    Effect.gen(function* () {
      const key = { MUSTER_API_KEY: "x" }
      const closed = `http://127.0.0.1:${yield* freePort}`
      const foreign = yield* page
      const tls = foreign.url.replace("http", "https")
      for (const [url, status, expected] of [
        [closed, 5, `${closed} cannot be reached (ECONNREFUSED): set MUSTER_URL to where the service is`],
        [tls, 5, `${tls} cannot be reached (TLS fails: `],
        [foreign.url, 1, `the response of ${foreign.url} is invalid: check MUSTER_URL`]
      ] as const) {
        const { code, stderr, stdout } = yield* muster(["nodes", "list"], { ...key, MUSTER_URL: url })
        assert.deepStrictEqual([code, stdout], [status, ""])
        assert.isTrue(stderr.startsWith(expected), stderr)
        assert.strictEqual(stderr.trimEnd().split("\n").length, 1, stderr)
      }
    }).pipe(Effect.scoped)
  )

  it.live("a data folder without a service is one line with the settings to check", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const { code, stderr } = yield* muster(["nodes", "list"], { MUSTER_DATA_DIR: dataDir })
      assert.strictEqual(code, 5)
      assert.strictEqual(
        stderr,
        `unix:${dataDir}/muster.sock cannot be reached (ENOENT): no service runs on this data folder. Start it with \`muster serve\`, set MUSTER_DATA_DIR to the data folder of the service, or set MUSTER_URL and MUSTER_API_KEY\n`
      )
    }).pipe(Effect.scoped)
  )
})

describe("docs/keys.md, Get the first key", () => {
  it.live("the first command in the log of a service works in another folder", () =>
    Effect.gen(function* () {
      const { output } = yield* startService({
        env: { ...alone, APP_ADMIN_API_KEY: "" },
        dataDir: join(yield* temporaryFolder, "data of mine")
      })
      const found = yield* eventually(
        () => /Command line: (.*) muster servers list/.exec(output())?.[1],
        (line) => line !== undefined
      )
      const [, dataDir = ""] = /^MUSTER_DATA_DIR='([^']+)'$/.exec(found ?? "") ?? []
      const listed = yield* muster(["servers", "list"], { MUSTER_DATA_DIR: dataDir })
      assert.deepStrictEqual([listed.code, listed.stderr], [0, "No servers.\n"])
    }).pipe(Effect.scoped)
  )
})

describe("muster keys: a data folder without a database", () => {
  it.live("no command creates a database or a folder; each names the settings", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const dataDir = join(folder, "data")
      const noDatabase = `there is no database yet: SQLite ${join(dataDir, "muster.db")}: set MUSTER_DATA_DIR or MUSTER_DATABASE_URL as the service has it\n`
      const noFolder = `there is no data folder ${dataDir}: run the command in the folder of the service, or set MUSTER_DATA_DIR to its data folder, or MUSTER_URL and MUSTER_API_KEY\n`
      for (const [args, status, message] of [
        [["keys", "list", "--database"], 1, noDatabase],
        [["keys", "revoke", "key_x", "--database"], 1, noDatabase],
        [["keys", "create", "--name", "x", "--database"], 1, noDatabase],
        [["db", "status"], 1, noDatabase],
        [["keys", "create", "--name", "x"], 5, noFolder],
        [["servers", "list"], 5, noFolder]
      ] as const) {
        const { code, stderr, stdout } = yield* muster(args, { MUSTER_DATA_DIR: dataDir })
        assert.deepStrictEqual([code, stdout, stderr], [status, "", message])
      }
      assert.isFalse(existsSync(dataDir))
    }).pipe(Effect.scoped)
  )
})

describe("muster node", () => {
  it.live(
    "the help lists the settings with their defaults; the help of muster describes the command in one line",
    () =>
      Effect.gen(function* () {
        const { stdout } = yield* muster(["node", "--help"])
        for (const { name, standard } of Object.values(nodeSettings)) {
          assert.include(stdout, standard === "" ? `  ${name}\n` : `  ${name}=${standard}\n`)
        }
        const all = yield* muster(["--help"])
        assert.match(all.stdout, /^ {2}node +Run the daemon of a node$/m)
      })
  )
})

describe("muster nodes drain", () => {
  it.live("the help says which servers a drained node accepts", () =>
    Effect.gen(function* () {
      const { stdout } = yield* muster(["nodes", "drain", "--help"])
      assert.match(stdout, /no new servers on a node, except those that name it with node_id/)
    })
  )
})

layer(Control.layer, { excludeTestServices: true, timeout: "60 seconds" })("commands", (it) => {
  describe("muster node", () => {
    it.effect("the daemon logs its listen address, and its URL if that differs", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key } = yield* nodeKey(api, "where")
        const first = Effect.fnUntraced(function* (id: string, url: (port: number) => string, host: string) {
          const port = yield* freePort
          const env = {
            MUSTER_NODE_PORT: String(port),
            MUSTER_NODE_HOST: host,
            MUSTER_NODE_URL: url(port),
            MUSTER_NODE_ALLOCATIONS: "127.0.0.1:41510-41519"
          }
          const node = yield* startNode({ control: api.url, key, id, env })
          assert.strictEqual(node.url, `http://${host}:${port}`)
          const line =
            node
              .output()
              .split("\n")
              .find((text) => text.includes("listens on http")) ?? ""
          return line.slice(line.indexOf("listens")).replaceAll(String(port), "PORT")
        }, Effect.scoped)
        for (const [url, host, expected] of [
          [() => "", "127.0.0.1", "listens on http://127.0.0.1:PORT"],
          [(port: number) => `http://127.0.0.1:${port}/`, "127.0.0.1", "listens on http://127.0.0.1:PORT"],
          [
            (port: number) => `http://localhost:${port}`,
            "0.0.0.0",
            "listens on http://0.0.0.0:PORT and is called at http://localhost:PORT"
          ]
        ] as const) {
          assert.strictEqual(yield* first("where", url, host), expected)
        }
      })
    )
  })

  describe("spec 6.1: keys", () => {
    it.effect("the message for a refused key names its source and says how to create another", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const wrong = `${api.url} refuses the key of`
        const { key } = yield* nodeKey(api, "lesser")
        for (const [env, expected] of [
          [
            { MUSTER_API_KEY: "x" },
            `${wrong} MUSTER_API_KEY: the API key is not valid; set it to a key of scope AppAdmin; ${MAKE}\n`
          ],
          [
            { MUSTER_API_KEY: key },
            `${wrong} MUSTER_API_KEY: the API key lacks the scope AppAdmin; set it to a key of scope AppAdmin; ${MAKE}\n`
          ]
        ] as const) {
          const { code, stderr } = yield* muster(["nodes", "list"], { ...env, MUSTER_URL: api.url })
          assert.deepStrictEqual([code, stderr], [4, expected])
        }
        const limited = yield* muster(["keys", "create", "--name", "limited", "--scope", "Operator"], {
          MUSTER_DATA_DIR: api.dataDir
        })
        const refused = yield* muster(["servers", "create", "game"], {
          MUSTER_URL: api.url,
          MUSTER_API_KEY: limited.stdout.trim()
        })
        assert.deepStrictEqual(
          [refused.code, refused.stderr],
          [
            4,
            `${wrong} MUSTER_API_KEY: the API key lacks: create; set it to a key with this right; \`muster keys create --name <name> --scope Operator --allow create\` beside the service makes one\n`
          ]
        )
      })
    )

    it.effect(
      "the list shows the node of a key, when that node was last seen, and the end of the key's validity",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const run = (...args: ReadonlyArray<string>) => muster(args, { MUSTER_DATA_DIR: api.dataDir })
          const make = (...args: ReadonlyArray<string>) =>
            Effect.map(run("keys", "create", ...args), ({ stderr }) => /key_\w+/.exec(stderr)?.[0] ?? "")
          const used = yield* nodeKey(api, "used")
          const unused = yield* make("--name", "unused", "--scope", "Node")
          const short = yield* make("--name", "short", "--expires", "90m")
          const gone = yield* make("--name", "gone")
          const limits =
            "--server aaaaaaaaaaa1,baaaaaaaaaa1 --blueprint kept --label team=a --label tier= --max-servers 3 --max-memory 1024"
          const limited = yield* make("--name", "ci", "--scope", "Operator", ...limits.split(" "))
          yield* run("keys", "revoke", gone)
          const node = yield* makeSimulatedNode({
            id: "seen",
            key: used.key,
            control: [api.url],
            ports: "41500-41509"
          })
          yield* nodeIs(api, "seen", true)

          const { stdout } = yield* run("keys", "list")
          const time = "\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z"
          for (const line of [
            "ID +SCOPE +STATE +NAME +NODE +SEEN",
            `${used.id} +Node +valid +used +seen +${time}`,
            `${unused} +Node +valid +unused +- +-`,
            `${short} +AppAdmin +valid until ${time} +short +- +-`,
            `${gone} +AppAdmin +revoked ${time} +gone +- +-`,
            `${limited} +Operator \\(servers aaaaaaaaaaa1,baaaaaaaaaa1, blueprints kept, team=a, tier=, at most 3 servers, at most 1024 MiB\\) +valid +ci +- +-`
          ]) {
            assert.match(stdout, new RegExp(`^${line}$`, "m"))
          }

          const listed: ReadonlyArray<Record<string, unknown>> = JSON.parse(
            (yield* run("keys", "list", "--json")).stdout
          )
          const of = (id: string) => listed.find((key) => key.id === id)
          const never = { expires_at: null, revoked_at: null }
          assert.deepInclude(of(used.id), { scope: "Node", state: "valid", node_id: "seen", ...never })
          assert.match(String(of(used.id)?.last_seen_at), new RegExp(`^${time}$`))
          assert.deepInclude(of(unused), { state: "valid", node_id: null, last_seen_at: null })
          assert.deepInclude(of(gone), { state: "revoked", name: "gone" })
          assert.isTrue(listed.every((key) => !("hash" in key)))

          // The node of a revoked key has no `last_seen_at`.
          yield* run("keys", "revoke", used.id)
          const after = yield* run("keys", "list")
          assert.match(after.stdout, new RegExp(`^${used.id} +Node +revoked ${time} +used +seen +-$`, "m"))
          yield* node.kill
        })
    )
  })
})

import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Option, Redacted } from "effect"
import { loadCommandSettings } from "../../src/shared/config/command.ts"
import { loadNodeSettings } from "../../src/shared/config/node.ts"
import { loadServiceSettings } from "../../src/shared/config/service.ts"
import { muster } from "../support/command.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeKey, startNode } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const from =
  (env: Record<string, string>) =>
  <A, E>(load: Effect.Effect<A, E>) =>
    Effect.provideService(load, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env }))

const secret = "a-secret-that-no-message-may-show"

/** A file as systemd's `LoadCredential` makes it. */
const credential = Effect.fnUntraced(function* (text: string | Uint8Array, name = "credential") {
  const path = join(yield* temporaryFolder, name)
  writeFileSync(path, text)
  chmodSync(path, 0o400)
  return path
})

describe("secret settings: values from files", () => {
  it.live("the value is the file without its final newline", () =>
    Effect.gen(function* () {
      const key = yield* credential(`${secret}\n`)
      const url = yield* credential(`postgres://u:${secret}@db.example.com/muster\r\n`)
      const service = yield* from({ APP_ADMIN_API_KEY_FILE: key, MUSTER_DATABASE_URL_FILE: url })(
        loadServiceSettings
      )
      assert.strictEqual(Redacted.value(Option.getOrThrow(service.adminKey)), secret)
      assert.deepInclude(service.databaseUrl, { _tag: "Postgres" })
      assert.notInclude(JSON.stringify(service), secret)
      const node = yield* from({ MUSTER_NODE_KEY_FILE: key })(loadNodeSettings)
      assert.strictEqual(Redacted.value(node.key), secret)
      const command = yield* from({ MUSTER_API_KEY_FILE: key })(loadCommandSettings)
      assert.strictEqual(command.apiKey, secret)
    }).pipe(Effect.scoped)
  )

  it.live("an unusable file stops the start with one line that contains nothing of the file", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const pipe = join(folder, "pipe")
      execFileSync("mkfifo", [pipe])
      const files: ReadonlyArray<readonly [string, RegExp]> = [
        [join(folder, "missing"), /missing cannot be read \(ENOENT: no such file or directory\)$/],
        [folder, / is not a regular file$/],
        // The pipe has no writer, so opening it must not block.
        [pipe, / is not a regular file$/],
        ["/dev/zero", / is not a regular file$/],
        [yield* credential("\n"), / is empty$/],
        [yield* credential(`${secret}\nsecond line\n`), / holds more than one line$/],
        [yield* credential("x".repeat(64 * 1024 + 1)), / has 65537 bytes, and may have 65536$/]
      ]
      for (const [path, expected] of files) {
        const error = yield* Effect.flip(from({ APP_ADMIN_API_KEY_FILE: path })(loadServiceSettings))
        assert.match(error.message, expected)
        assert.isTrue(error.message.startsWith(`APP_ADMIN_API_KEY_FILE: ${path} `), error.message)
        assert.notInclude(error.message, "\n")
        assert.notInclude(error.message, secret)
      }
      const wrong = yield* credential(`mysql://u:${secret}@host/muster\n`)
      const error = yield* Effect.flip(from({ MUSTER_DATABASE_URL_FILE: wrong })(loadServiceSettings))
      assert.match(error.message, /^MUSTER_DATABASE_URL_FILE is ".*"; it may be /)
      assert.notInclude(error.message, secret)
    }).pipe(Effect.scoped)
  )

  it.live("a setting that is set both ways is refused with both names", () =>
    Effect.gen(function* () {
      const path = yield* credential(secret)
      for (const [name, load] of [
        ["APP_ADMIN_API_KEY", Effect.asVoid(loadServiceSettings)],
        ["MUSTER_DATABASE_URL", Effect.asVoid(loadServiceSettings)],
        ["MUSTER_NODE_KEY", Effect.asVoid(loadNodeSettings)],
        ["MUSTER_API_KEY", Effect.asVoid(loadCommandSettings)]
      ] as const) {
        const error = yield* Effect.flip(from({ [name]: secret, [`${name}_FILE`]: path })(load))
        assert.strictEqual(error.message, `${name} and ${name}_FILE are both set: unset one of them`)
      }
    }).pipe(Effect.scoped)
  )

  it.live("service, node and command run with files alone and warn of no unknown setting", () =>
    Effect.gen(function* () {
      const admin = "an-admin-key-that-is-in-a-file-only"
      const file = yield* credential(`${admin}\n`, "admin")
      const api = yield* startService({
        env: { ...alone, APP_ADMIN_API_KEY: "", APP_ADMIN_API_KEY_FILE: file }
      })
      yield* expectStatus(api, 401, "GET", "/api/nodes")
      const asked = yield* api.request("GET", "/api/nodes", { key: admin })
      assert.strictEqual(asked.status, 200)
      const { key } = yield* nodeKey(api)
      const node = yield* startNode({
        control: api.url,
        key: "",
        id: "from-a-file",
        env: { MUSTER_NODE_KEY_FILE: yield* credential(`${key}\n`) }
      })
      yield* eventually(
        api.request("GET", "/api/nodes/from-a-file", { key: admin }),
        (answer) => answer.json?.connected === true
      )
      const listed = yield* muster(["nodes", "list"], { MUSTER_URL: api.url, MUSTER_API_KEY_FILE: file })
      assert.include(listed.stdout, "from-a-file")
      for (const output of [api.output(), node.output()]) assert.notInclude(output, "is not a setting")
    }).pipe(Effect.scoped)
  )
})

describe("secret settings: removal from the environment", () => {
  it.live("no program that the service starts gets a secret, also with MUSTER_PASS_ENV=*", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      // A system program that starts with every server, replaced to print its environment.
      const bin = join(folder, "bin")
      mkdirSync(bin)
      const seen = join(folder, "seen")
      writeFileSync(join(bin, "mkfifo"), `#!/bin/sh\n/usr/bin/env >> ${seen}\nexec /usr/bin/mkfifo "$@"\n`, {
        mode: 0o755
      })
      const sources = join(folder, "sources.yml")
      const source = { id: "s", url: "https://127.0.0.1:1/r.git", timeout: 2, token_env: "TEAM_TOKEN" }
      writeFileSync(sources, JSON.stringify({ sources: [source] }))
      const { env } = yield* definitions({
        software: {
          "game.yml": softwareFile("game", {
            files: { "server.sh": "env; echo ready; while read -r line; do [ $line = stop ] && exit 0; done" }
          })
        },
        blueprints: { "kept.yml": blueprintFile("kept", "game") }
      })
      const api = yield* startService({
        env: {
          ...env,
          PATH: `${bin}:${process.env.PATH}`,
          MUSTER_EMBEDDED_RUNTIME: "process",
          MUSTER_BLUEPRINT_SOURCES: sources,
          MUSTER_PASS_ENV: "*",
          TEAM_TOKEN: secret,
          PLAIN: "handed on"
        }
      })
      const id = yield* running(api, "kept")
      const printed = (yield* expectStatus(api, 200, "GET", `/api/servers/${id}/logs?per_page=1000`)).text
      assert.include(printed, "PLAIN=handed on")
      const started = existsSync(seen) ? readFileSync(seen, "utf8") : ""
      for (const text of [printed, started]) {
        assert.notInclude(text, secret)
        assert.notInclude(text, api.key)
      }
    }).pipe(Effect.scoped)
  )
})

import { readdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Option, Redacted } from "effect"
import * as fc from "fast-check"
import { allocations } from "../../../src/shared/config/kinds.ts"
import { InvalidSetting, viewAll } from "../../../src/shared/config/Setting.ts"
import { loadServiceSettings, settings } from "../../../src/shared/config/service.ts"
import { muster } from "../../support/command.ts"
import { startService } from "../../support/Service.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { noNode } from "./support/http.ts"

const root = resolve(import.meta.dirname, "../../..")

const load = (env: Record<string, string>) =>
  Effect.provideService(loadServiceSettings, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env }))

/** Invalid values of each setting that does not accept any text. */
const wrong: Record<string, ReadonlyArray<string>> = {
  MUSTER_PORT: ["65536", "-1", "http", "80.5", " 80"],
  MUSTER_DATA_DIR: ["a\0b"],
  MUSTER_SECRET_FILE: ["a\0b"],
  MUSTER_NODE_TOKEN_HOURS: ["0", "1d"],
  MUSTER_BLUEPRINTS_DIR: ["\0"],
  MUSTER_SOFTWARE_DIR: ["\0"],
  MUSTER_DATABASE_URL: ["mysql://x", "sqlite:", "postgres://localhost/muster"],
  MUSTER_DATABASE_POOL: ["0", "many"],
  MUSTER_DATABASE_TIMEOUT: ["99", "1s"],
  MUSTER_EMBEDDED_NODE: ["yes", "TRUE", "1"],
  MUSTER_EMBEDDED_ALLOCATIONS: ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:2-", ":25565"],
  MUSTER_EMBEDDED_ON_SHUTDOWN: ["kill"],
  MUSTER_PLACEMENT: ["random"],
  MUSTER_PROCESS_ISOLATION: ["false", "Required"],
  MUSTER_PROCESS_UIDS: ["0-9", "70000", "70001-70000", "1-4294967295", "a-b"],
  MUSTER_OVERCOMMIT_MEMORY: ["0", "x", "1001"],
  MUSTER_OVERCOMMIT_DISK: ["NaN"],
  MUSTER_NODE_LOST_AFTER: ["0", "1.5"],
  MUSTER_NODE_BACKUP_FOLDERS: ["/", "backups", "/a/../b", "/a//b", "/a,b", "/a\0b"],
  MUSTER_BACKUP_RATE: ["-1", "50", "1023B", "50MiB/s", "fast"],
  MUSTER_KEEP_DELETED: ["7", "0d", "1w", "3651d"],
  MUSTER_EVENTS_KEEP_HOURS: ["0", "never"],
  MUSTER_EVENTS_KEEP_COUNT: ["0", "1e6"],
  MUSTER_BODY_LIMIT: ["1023", "1MB"],
  MUSTER_RATE_LIMIT: ["-1", "some"],
  MUSTER_STREAMS_PER_KEY: ["0", "many"],
  MUSTER_STREAMS: ["0", "1000001"],
  MUSTER_CORS_ORIGINS: ["panel.example.com", "https://a.example/path", "https://a.example,x"],
  MUSTER_NODE_NETWORKS: ["10.0.0.0/33", "10.0.0", "nodes.example.com"],
  MUSTER_REQUIRE_TLS: ["yes", "1"],
  MUSTER_TRUSTED_PROXIES: ["10.0.0.0/33", "everyone"],
  MUSTER_PUBLIC_PAGES: ["none", "Banner"],
  MUSTER_SHUTDOWN_GRACE: ["-1", "3601", "5s"],
  MUSTER_LOG_FORMAT: ["xml"],
  MUSTER_LOG_LEVEL: ["INFO", "loud"]
}

describe("settings", () => {
  it.effect("folders of backups and their rate are read", () =>
    Effect.gen(function* () {
      const read = (folders: string, rate: string) =>
        Effect.map(
          load({ MUSTER_NODE_BACKUP_FOLDERS: folders, MUSTER_BACKUP_RATE: rate }),
          ({ backupFolders, backupRate }) => [backupFolders, backupRate]
        )
      assert.deepStrictEqual(yield* read("", "0"), [[], 0])
      assert.deepStrictEqual(yield* read("/mnt/a/, /mnt/b", "50MiB"), [["/mnt/a", "/mnt/b"], 50 * 1024 ** 2])
      assert.deepStrictEqual((yield* read("", "1.5 MB"))[1], 1_500_000)
    })
  )

  it.effect("the view of the settings has no secret, also not one in an address", () =>
    Effect.gen(function* () {
      const env = {
        OTEL_EXPORTER_OTLP_ENDPOINT: "http://user:hunter2@collector.example:4318/a?b=c@d",
        OTEL_EXPORTER_OTLP_HEADERS: "authorization=hunter2",
        MUSTER_DATABASE_URL: "postgres://u:hunter2@localhost/muster"
      }
      const shown = yield* Effect.provideService(
        viewAll(settings),
        ConfigProvider.ConfigProvider,
        ConfigProvider.fromEnv({ env })
      )
      assert.notInclude(JSON.stringify(shown), "hunter2")
      const endpoint = shown.find(({ name }) => name === "OTEL_EXPORTER_OTLP_ENDPOINT")
      assert.strictEqual(endpoint?.value, "http://…@collector.example:4318/a?b=c@d")
    })
  )

  it.effect("the message of an invalid value names the setting and the allowed values", () =>
    Effect.gen(function* () {
      for (const [name, values] of Object.entries(wrong)) {
        const one = Object.values(settings).find((setting) => setting.name === name)
        for (const value of values) {
          const error = yield* Effect.flip(load({ [name]: value }))
          assert.instanceOf(error, InvalidSetting)
          assert.strictEqual(error.message, `${name} is ${JSON.stringify(value)}; it may be ${one?.may}`)
        }
      }
    })
  )

  it.effect("the message of a reversed port range says that the range is reversed", () =>
    Effect.gen(function* () {
      const name = "MUSTER_EMBEDDED_ALLOCATIONS"
      const may = Object.values(settings).find((setting) => setting.name === name)?.may
      const reversed = { "127.0.0.1:5-3": ["5-3", "3-5"], "[::1]:1-2,80; 10.0.0.7:7,9-8": ["9-8", "8-9"] }
      for (const [value, [range, better]] of Object.entries(reversed)) {
        const { message } = yield* Effect.flip(load({ [name]: value }))
        const wrong = `the range ${range} is reversed, write ${better}`
        assert.strictEqual(message, `${name} is ${JSON.stringify(value)}: ${wrong}; it may be ${may}`)
      }
      const { message } = yield* Effect.flip(load({ [name]: "10.0.0.7:0-3" }))
      assert.strictEqual(message, `${name} is "10.0.0.7:0-3"; it may be ${may}`)
    })
  )

  it.effect("an alias follows the ports after =; it is a host name or an address", () =>
    Effect.gen(function* () {
      const read = yield* load({
        MUSTER_EMBEDDED_ALLOCATIONS:
          "10.0.0.7:1-9,12=play.example.com; [2001:db8::7]:1=PLAY6.example ;127.0.0.1:1 = localhost;10.0.0.8:1=203.0.113.7;::1:5"
      })
      assert.deepStrictEqual(
        read.embeddedAllocations.map(({ address, alias, ports }) => [address, ports, alias]),
        [
          ["10.0.0.7", "1-9,12", "play.example.com"],
          ["2001:db8::7", "1", "PLAY6.example"],
          ["127.0.0.1", "1", "localhost"],
          ["10.0.0.8", "1", "203.0.113.7"],
          ["::1", "5", ""]
        ]
      )
    })
  )

  it.effect("an alias that is not a host name and an address that is given twice are named", () =>
    Effect.gen(function* () {
      const name = "MUSTER_EMBEDDED_ALLOCATIONS"
      const may = Object.values(settings).find((setting) => setting.name === name)?.may
      const refusedAliases = [
        "",
        "a b",
        "-a",
        "a..b",
        "a=b",
        "a_b",
        "10.0.0.300",
        "a:1",
        "ä",
        "fe80::1%eth0",
        `${"a".repeat(64)}.b`
      ]
      const mistakes = [
        ...refusedAliases.map((alias) => [
          `10.0.0.8:1;10.0.0.7:1-9=${alias}`,
          `the alias ${JSON.stringify(alias)} is not a host name`
        ]),
        ["10.0.0.7:1;10.0.0.7:2=a", "10.0.0.7 is there twice, give all its ports at once"],
        ["[::1]:1; [0:0::1]:2", "::1 is there twice, give all its ports at once"],
        ["10.0.0.7:9-1=a.example", "the range 9-1 is reversed, write 1-9"]
      ] as const
      for (const [value, wrong] of mistakes) {
        const { message } = yield* Effect.flip(load({ [name]: value }))
        assert.strictEqual(message, `${name} is ${JSON.stringify(value)}: ${wrong}; it may be ${may}`)
      }
    })
  )

  it("any list of addresses, ports and aliases is read as it is written", () => {
    const port = fc.integer({ min: 1, max: 65_535 })
    const ports = fc.oneof(
      port.map(String),
      fc.tuple(port, port).map(([a, b]) => `${Math.min(a, b)}-${Math.max(a, b)}`)
    )
    const address = fc.oneof(fc.ipV4(), fc.ipV6())
    const entry = fc.record({
      address,
      ports,
      alias: fc.option(fc.oneof(fc.domain(), fc.ipV4()), { nil: "" })
    })
    fc.assert(
      fc.property(
        fc.uniqueArray(entry, { minLength: 1, maxLength: 5, selector: (it) => it.address }),
        (entries) => {
          const text = entries.map(
            ({ address, alias, ports }) =>
              `${address.includes(":") ? `[${address}]` : address}:${ports}${alias === "" ? "" : `=${alias}`}`
          )
          const mistake = allocations.wrong(text.join("; "))
          // Two spellings of one IPv6 address.
          fc.pre(mistake === undefined || !mistake.includes("twice"))
          assert.deepStrictEqual(
            allocations.read(text.join("; "))?.map(({ force_outgoing_ip: _, ...rest }) => rest),
            entries
          )
        }
      )
    )
  })

  it.effect("no output contains the password of the database, also if its URL is invalid", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(load({ MUSTER_DATABASE_URL: "postgres://u:s3cret@host:0/muster" }))
      assert.match(error.message, /^MUSTER_DATABASE_URL is "postgres:…"; it may be /)
      const read = yield* load({ MUSTER_DATABASE_URL: "postgres://u:s3cret@host/muster" })
      assert.notInclude(JSON.stringify(read), "s3cret")
    })
  )

  it.effect("every default is a valid value, and an empty variable counts as unset", () =>
    Effect.gen(function* () {
      const standard = yield* load({})
      assert.strictEqual(standard.port, 5620)
      assert.isTrue(Option.isNone(standard.adminKey))
      const empty = yield* load(
        Object.fromEntries(Object.values(settings).map((setting) => [setting.name, ""]))
      )
      assert.deepStrictEqual(empty, standard)
    })
  )

  it.effect("every setting is read from its variable", () =>
    Effect.gen(function* () {
      const read = yield* load({
        MUSTER_PORT: "0",
        MUSTER_EMBEDDED_NODE: "false",
        MUSTER_CORS_ORIGINS: " https://a.example , http://localhost:3000 ",
        MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:25565-25570,25580; [::1]:1",
        APP_ADMIN_API_KEY: "s3cret"
      })
      assert.strictEqual(read.port, 0)
      assert.isFalse(read.embeddedNode)
      assert.deepStrictEqual(read.corsOrigins, ["https://a.example", "http://localhost:3000"])
      assert.deepStrictEqual(
        read.embeddedAllocations.map(({ address, ports }) => [address, ports]),
        [
          ["127.0.0.1", "25565-25570,25580"],
          ["::1", "1"]
        ]
      )
      assert.strictEqual(Redacted.value(Option.getOrThrow(read.adminKey)), "s3cret")
      assert.notInclude(JSON.stringify(read), "s3cret")
    })
  )

  it("one table lists every setting; no other code reads a variable of the service", () => {
    const names = Object.values(settings).map((setting) => setting.name)
    assert.deepStrictEqual(names.length, new Set(names).size)
    for (const file of readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts") || file === "shared/config/Setting.ts") continue
      const text = readFileSync(join(root, "src", file), "utf8")
      assert.notMatch(text, /process\.env[.[]/, file)
      // XDG_CONFIG_HOME is a setting of the system, for all programs.
      assert.notMatch(text, /\bConfig\.(?:String|Int|Number|Boolean|Redacted)\((?!"XDG_CONFIG_HOME"\))/, file)
    }
    for (const setting of Object.values(settings)) {
      assert.notStrictEqual(setting.meaning, "")
      assert.notStrictEqual(setting.may, "")
    }
  })
})

describe("the start", () => {
  it.live(
    "an invalid setting stops the start with one line: the setting, its value and the allowed values",
    () =>
      Effect.gen(function* () {
        const ended = yield* muster(["serve"], { MUSTER_PORT: "http" })
        assert.deepStrictEqual(ended, {
          code: 1,
          stdout: "",
          stderr: 'MUSTER_PORT is "http"; it may be a whole number from 0 to 65535\n'
        })
      })
  )

  it.live("a port in use or a data folder that cannot be created stops the start with one line", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: noNode })
      const folder = yield* temporaryFolder
      const base = { ...noNode, MUSTER_LOG_LEVEL: "error" }
      const taken = yield* muster(["serve"], {
        ...base,
        MUSTER_PORT: new URL(api.url).port,
        MUSTER_DATA_DIR: join(folder, "data")
      })
      assert.strictEqual(taken.code, 1)
      assert.match(taken.stderr, /^the address is in use \(.*\): set MUSTER_PORT or MUSTER_HOST\n$/)
      const file = yield* muster(["serve"], { ...base, MUSTER_DATA_DIR: "/dev/null/data" })
      assert.strictEqual(file.code, 1)
      assert.match(
        file.stderr,
        /^the data folder \/dev\/null\/data cannot be made \(.*\); set MUSTER_DATA_DIR\n$/
      )
      const none = yield* muster(["serve"], { ...base, MUSTER_DATA_DIR: "/proc/none/data" })
      assert.strictEqual(none.code, 1)
      assert.match(none.stderr, /^the data folder \/proc\/none\/data cannot be made \(ENOENT.*\n$/)
      const second = yield* muster(["serve"], { ...base, MUSTER_PORT: "0", MUSTER_DATA_DIR: api.dataDir })
      assert.strictEqual(second.code, 1)
      assert.match(second.stderr, /^.+\n$/)
      assert.strictEqual((yield* api.request("GET", "/readyz")).status, 200)
    })
  )
})

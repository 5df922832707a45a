import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startChild } from "../support/child.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { adminKey, startService } from "../support/Service.ts"
import { running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")

/** Prints each line that it reads. */
const echo = 'echo ready\nwhile read -r line; do echo "got $line"; done'

/** Prints a line every tenth of a second, and each line that it reads. */
const clock = `(while sleep 0.1; do echo tick; done) &\n${echo}`

const files = {
  software: {
    "slow.yml": softwareFile("slow", { install: { script: "sleep 600" } }),
    "echo.yml": softwareFile("echo", { files: { "server.sh": echo } }),
    "clock.yml": softwareFile("clock", { files: { "server.sh": clock } })
  },
  blueprints: {
    "slow.yml": blueprintFile("slow", "slow"),
    "echo.yml": blueprintFile("echo", "echo"),
    "clock.yml": blueprintFile("clock", "clock")
  }
}

/** A service that can start again at the same address, and commands for it. */
const restartable = Effect.gen(function* () {
  const { env } = yield* definitions(files)
  const port = yield* freePort
  const dataDir = join(yield* temporaryFolder, "data")
  const settings = { ...env, MUSTER_PORT: String(port), MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:41600-41619" }
  const start = startService({ dataDir, env: settings })
  const client = {
    MUSTER_URL: `http://127.0.0.1:${port}`,
    MUSTER_API_KEY: adminKey,
    XDG_CONFIG_HOME: "/dev/null"
  }
  const run = (...args: ReadonlyArray<string>) =>
    startChild([process.execPath, join(root, "dist/main.js"), ...args], { cwd: root, env: client })
  return { start, run, client }
})

describe("spec 8.6: a command that waits", () => {
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    it.live(
      `ends with 5 and prints no server once the service is gone (${signal})`,
      () =>
        Effect.gen(function* () {
          const { run, start } = yield* restartable
          const service = yield* start
          const created = yield* run("servers", "create", "slow", "--name", "gone", "--start", "--wait")
          yield* created.prints(/installs on/)
          const log = yield* run("servers", "install-log", "gone", "-f")
          yield* log.prints(/script/)
          service.process.kill(signal)
          for (const command of [created, log]) {
            assert.strictEqual(yield* command.exited(), 5, command.output())
            assert.strictEqual(command.stdout(), "")
            assert.strictEqual(command.output().match(/connection lost, reconnecting/g)?.length, 1)
            assert.match(command.output(), /cannot be reached any more \(/)
          }
        }).pipe(Effect.scoped),
      60_000
    )
  }

  it.live(
    "waits on if the service is back soon",
    () =>
      Effect.gen(function* () {
        const { run, start } = yield* restartable
        const service = yield* start
        const created = yield* run("servers", "create", "slow", "--name", "kept", "--wait")
        yield* created.prints(/installs on/)
        yield* service.kill("SIGKILL")
        yield* created.prints(/connection lost, reconnecting/)
        const { request } = yield* start
        const [{ id }] = (yield* request("GET", "/api/servers")).json
        yield* request("DELETE", `/api/servers/${id}?force=true`)
        assert.strictEqual(yield* created.exited(), 1, created.output())
        assert.match(created.output(), /was deleted/)
      }).pipe(Effect.scoped),
    60_000
  )
})

describe("spec 8.6: a command that follows", () => {
  it.live(
    "says once that the service is out of reach, and once that it is back",
    () =>
      Effect.gen(function* () {
        const { client, run, start } = yield* restartable
        const service = yield* start
        const id = yield* running(service, "echo", { name: "followed" })
        const reader = yield* service.request("POST", "/api/keys", {
          body: { name: "reader", scope: "ReadOnly" }
        })
        const onTerminal = `${process.execPath} ${join(root, "dist/main.js")} servers top --interval 1s`
        const events = yield* run("events", "-f", "--since", "0")
        const log = yield* run("servers", "logs", "followed", "-f")
        const console = yield* run("servers", "console", "followed")
        const audit = yield* run("audit", "-f", "--since", "1h")
        const top = yield* startChild(
          ["script", "--quiet", "--return", "--command", onTerminal, "/dev/null"],
          { cwd: root, env: { ...client, TERM: "xterm" } }
        )
        const polled = yield* startChild(
          [process.execPath, join(root, "dist/main.js"), "servers", "logs", "followed", "-f"],
          { cwd: root, env: { ...client, MUSTER_API_KEY: reader.json.key } }
        )
        const followers = [events, log, console, audit, top, polled]
        yield* audit.prints(/key\.create/)
        yield* top.prints(/followed/)
        yield* polled.prints(/ready/)
        yield* events.prints(/running/)
        yield* log.prints(/ready/)
        // Both have their connections once this line has arrived.
        yield* console.write("hello\n")
        yield* log.prints(/got hello/)
        yield* service.kill("SIGKILL")
        for (const follower of followers) yield* follower.prints(/connection lost, reconnecting/)
        const again = yield* start
        for (const follower of followers) yield* follower.prints(/connected again/)
        yield* again.request("DELETE", `/api/servers/${id}?force=true`)
        yield* events.prints(/deleted/)
        yield* audit.prints(/server\.delete/)
        for (const follower of followers) {
          assert.strictEqual(follower.output().match(/connection lost, reconnecting/g)?.length, 1)
        }
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "says that the service is back before it prints the lines of the meantime",
    () =>
      Effect.gen(function* () {
        const { client, start } = yield* restartable
        const service = yield* start
        const id = yield* running(service, "clock", { name: "clock" })
        // The two outputs of a command have one order on a terminal only.
        const program = `${process.execPath} ${join(root, "dist/main.js")}`
        const onTerminal = (command: string) =>
          startChild(
            [
              "script",
              "--quiet",
              "--return",
              "--command",
              `${program} servers ${command} clock`,
              "/dev/null"
            ],
            { cwd: root, env: { ...client, TERM: "xterm" } }
          )
        const followers = [yield* onTerminal("logs -f"), yield* onTerminal("console")] as const
        for (const follower of followers) yield* follower.prints(/tick/)
        // Both have their connections once a line arrives; the terminal drops what is typed before the console reads.
        for (const follower of followers) {
          yield* eventually(Effect.as(followers[1].write("hello\n"), follower), (to) =>
            to.output().includes("got hello")
          )
        }
        yield* service.kill("SIGKILL")
        for (const follower of followers) yield* follower.prints(/connection lost, reconnecting/)
        const again = yield* start
        for (const follower of followers) {
          yield* follower.prints(/connected again[\s\S]*tick/)
          assert.notMatch(follower.output(), /connection lost, reconnecting[\s\S]*tick[\s\S]*connected again/)
        }
        yield* again.request("DELETE", `/api/servers/${id}?force=true`)
      }).pipe(Effect.scoped),
    60_000
  )
})

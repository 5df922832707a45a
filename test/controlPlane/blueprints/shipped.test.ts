import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { globSync } from "node:fs"
import { dirname } from "node:path"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, type Scope } from "effect"
import { examples } from "../../../src/cli/init.ts"
import { BlueprintStore, SoftwareStore } from "../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { eventually } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { stores, write } from "./support.ts"

const shipped = {
  blueprints: new URL("../../../blueprints", import.meta.url).pathname,
  software: new URL("../../../software", import.meta.url).pathname
}

const live = <A, E>(effect: Effect.Effect<A, E, NodeServices.NodeServices | Scope.Scope>) =>
  effect.pipe(Effect.scoped, Effect.provide(NodeServices.layer))

/** The Node that runs this test comes first. */
const PATH = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`

const script = Effect.fnUntraced(function* (id: string) {
  const { install_script } = yield* (yield* SoftwareStore).get(id)
  assert.isNotNull(install_script)
  return install_script
})

/** Runs an install script as a daemon does: in the folder, with the documented variables. */
const install = Effect.fnUntraced(function* (
  id: string,
  version: string,
  directory: string,
  env: Readonly<Record<string, string>> = {}
) {
  const definition = yield* script(id)
  return yield* Effect.sync(() =>
    spawnSync(definition?.entrypoint ?? "sh", ["-c", definition?.script ?? ""], {
      cwd: directory,
      encoding: "utf8",
      env: { PATH, HOME: directory, VERSION: version, SOFTWARE_ID: id, INSTALL_DIR: directory, ...env }
    })
  )
})

describe("shipped definitions", () => {
  it("`muster init` writes every shipped definition", () => {
    for (const folder of ["blueprints", "software"] as const) {
      assert.deepStrictEqual(globSync("**/*.yml", { cwd: shipped[folder] }).toSorted(), [...examples[folder]])
    }
  })

  it.live("the definitions load without a warning, and every blueprint resolves", () =>
    live(
      Effect.gen(function* () {
        const log: Array<string> = []
        yield* Effect.gen(function* () {
          const blueprints = yield* BlueprintStore
          const views = yield* blueprints.list
          assert.includeMembers(
            views.map(({ metadata }) => metadata.id),
            ["demo", "demo-saved", "flying-squid", "paper"]
          )
          for (const view of views) {
            const definition = yield* blueprints.resolve(view.metadata.id, {})
            assert.strictEqual(definition.image, view.server.image)
            assert.isAbove(definition.limits.memory_limit ?? 0, 0)
          }
        }).pipe(Effect.provide(stores(shipped, log)))
        assert.deepStrictEqual(log, [])
      })
    )
  )

  it.live("a fresh installation has no schedules", () =>
    live(
      Effect.gen(function* () {
        const { blueprints } = yield* (yield* BlueprintStore).whole
        assert.isAbove(blueprints.size, 0)
        assert.deepStrictEqual(
          [...blueprints.values()].flatMap(({ schedules = [] }) => schedules),
          []
        )
      }).pipe(Effect.provide(stores(shipped)))
    )
  )

  it.live("demo is a small server that is deleted when it stops; demo-saved is saved", () =>
    Effect.gen(function* () {
      const blueprints = yield* BlueprintStore
      const demo = yield* blueprints.resolve("demo", {})
      assert.deepStrictEqual(demo.runtimes, ["process"])
      assert.strictEqual(demo.image, "")
      assert.strictEqual(demo.limits.memory_limit, 128)
      assert.strictEqual(demo.limits.swap, 0)
      assert.isFalse(demo.save)
      assert.deepStrictEqual(demo.configs["server.properties"]?.find, {
        "server-id": "{{server.id}}",
        motd: "Hello from Muster",
        "max-players": 10
      })
      assert.isTrue((yield* blueprints.resolve("demo-saved", {})).save)
    }).pipe(Effect.provide(stores(shipped)))
  )

  it.live("paper maps each version to a suitable Java", () =>
    Effect.gen(function* () {
      const blueprints = yield* BlueprintStore
      const java: Record<string, string> = {}
      for (const version of [
        "1.8.8",
        "1.16.5",
        "1.20.4",
        "1.20.5",
        "1.21.11",
        "26.1",
        "26.1-pre-1",
        "latest"
      ]) {
        java[version] = (yield* blueprints.resolve("paper", { version })).image.replace(/^.*temurin:/, "")
      }
      assert.deepStrictEqual(java, {
        "1.8.8": "8-jre",
        "1.16.5": "11-jre",
        "1.20.4": "17-jre",
        "1.20.5": "21-jre",
        "1.21.11": "21-jre",
        "26.1": "25-jre",
        "26.1-pre-1": "25-jre",
        latest: "25-jre"
      })
    }).pipe(Effect.provide(stores(shipped)))
  )
})

/** Starts a process, collects its output, and kills it with the scope. */
const start = (directory: string, port: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child: ChildProcess = spawn("node", ["server.mjs"], {
        cwd: directory,
        env: { PATH, SERVER_ID: "srv_1", SERVER_IP: "127.0.0.1", SERVER_PORT: port, VERSION: "1.0.0" },
        stdio: "pipe"
      })
      const output: Array<string> = []
      child.stdout?.setEncoding("utf8").on("data", (text: string) => output.push(text))
      child.stderr?.setEncoding("utf8").on("data", (text: string) => output.push(text))
      const exited = new Promise<number | null>((done) => child.once("exit", done))
      return {
        exited: Effect.promise(() => exited),
        input: child.stdin,
        kill: () => child.kill("SIGKILL"),
        output
      }
    }),
    ({ kill }) => Effect.sync(kill)
  )

/** Returns the first match in the output. */
const seen = (output: ReadonlyArray<string>, pattern: RegExp) =>
  eventually(
    (): ReadonlyArray<string> => pattern.exec(output.join("")) ?? [],
    (found) => found.length > 0
  )

describe("shipped definitions: the demo server", () => {
  it.live(
    "the demo server installs without a download, answers HTTP, reads its console, stops, and crashes on request",
    () =>
      live(
        Effect.gen(function* () {
          const fs = yield* FileSystem.FileSystem
          const directory = yield* temporaryFolder
          const installed = yield* install("demo", "1.0.0", directory)
          assert.strictEqual(installed.status, 0, installed.stderr)
          yield* fs.writeFileString(
            `${directory}/server.properties`,
            "# comment\nmotd=Good day\nmax-players=3\n"
          )

          const server = yield* start(directory, "0")
          const { process } = yield* (yield* SoftwareStore).get("demo")
          const [line = "", port = ""] = yield* seen(server.output, /demo: ready on 127\.0\.0\.1:(\d+)/)
          assert.include(line, process.online_signal ?? "none")
          const response = yield* Effect.promise(() =>
            fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.text())
          )
          assert.strictEqual(response, "Hello from srv_1\nGood day\n")

          const second = yield* start(directory, port)
          assert.strictEqual(yield* second.exited, 1)
          assert.include(second.output.join(""), "EADDRINUSE")

          server.input?.write("help\nsay hi  there\nlist\nconstructor\nspam 2500\n")
          const printed = yield* Effect.as(seen(server.output, /line 2500 of 2500/), server.output).pipe(
            Effect.map((output) => output.join(""))
          )
          for (const part of [
            "commands: help",
            "[Server] hi there",
            "max of 3 players",
            "unknown command: constructor"
          ]) {
            assert.include(printed, part)
          }
          server.input?.write(`${process.stop_command}\n`)
          assert.strictEqual(yield* server.exited, 0)

          const crashing = yield* start(directory, "0")
          yield* seen(crashing.output, /ready/)
          crashing.input?.write("crash 7\n")
          assert.strictEqual(yield* crashing.exited, 7)
        }).pipe(Effect.provide(stores(shipped)))
      )
  )
})

const jar = "the jar"
const sum = createHash("sha256").update(jar).digest("hex")

/** An answer of the download service; the commit message contains a URL that is no download. */
const builds = (
  sha256: string
) => `[{"id":133,"time":"2026-03-28T16:16:41.212Z","channel":"STABLE","commits":[
  {"sha":"ab","message":"\\"server:default\\":{\\"url\\":\\"https://evil.example/x\\"}"}],"downloads":{"server:default":{
  "name":"paper-1.21.11-133.jar","checksums":{"sha256":"${sha256}"},"size":7,"url":"https://data.example/paper.jar"}}},
  {"id":132,"downloads":{"server:default":{"name":"old.jar","checksums":{"sha256":"00"},"url":"https://data.example/old"}}}]`

/** A fake curl: returns builds and jars from files, and records the requests. */
const curl = `#!/bin/sh
while [ $# -gt 1 ]; do
  case "$1" in -A) agent="$2" ;; -o) out="$2" ;; esac
  shift
done
echo "$agent|$1" >> "$FAKE/requests"
case "$1" in *builds*) cat "$FAKE/builds.json" > "$out" ;; *) printf '%s' '${jar}' > "$out" ;; esac
`

const java = `#!/bin/sh
echo "$*" >> "$FAKE/java"
`

describe("shipped definitions: the install script of Paper", () => {
  /** The programs of a Java image only: no jq. */
  const tools = ["sh", "cat", "grep", "head", "rm", "sed", "sha256sum", "tr"]

  const attempt = Effect.fnUntraced(function* (answer: string) {
    const fs = yield* FileSystem.FileSystem
    const fake = yield* temporaryFolder
    const directory = yield* temporaryFolder
    yield* write(fake, { "bin/curl": curl, "bin/java": java, "builds.json": answer })
    for (const name of ["curl", "java"]) yield* fs.chmod(`${fake}/bin/${name}`, 0o755)
    for (const tool of tools) {
      const folder = (yield* fs.exists(`/usr/bin/${tool}`)) ? "/usr/bin" : "/bin"
      yield* fs.symlink(`${folder}/${tool}`, `${fake}/bin/${tool}`)
    }
    const { status, stderr } = yield* install("paper", "1.21.11", directory, {
      PATH: `${fake}/bin`,
      FAKE: fake
    })
    const lines = (file: string) =>
      Effect.map(fs.readFileString(`${fake}/${file}`), (text) => text.trim().split("\n"))
    return { status, stderr, lines, files: (yield* fs.readDirectory(directory)).sort(), directory }
  })

  it.live(
    "the script takes the newest stable build, sends a User-Agent, verifies the checksum and prepares the server",
    () =>
      live(
        Effect.gen(function* () {
          const fs = yield* FileSystem.FileSystem
          const { directory, files, lines, status, stderr } = yield* attempt(builds(sum))
          assert.strictEqual(status, 0, stderr)
          assert.deepStrictEqual(files, ["server.jar"])
          assert.strictEqual(yield* fs.readFileString(`${directory}/server.jar`), jar)
          const requests = (yield* lines("requests")).map((line) => line.split("|"))
          assert.deepStrictEqual(
            requests.map(([, url]) => url),
            [
              "https://fill.papermc.io/v3/projects/paper/versions/1.21.11/builds?channel=STABLE",
              "https://data.example/paper.jar"
            ]
          )
          for (const [agent] of requests) assert.match(agent ?? "", /^muster\/.*@/)
          assert.deepStrictEqual(yield* lines("java"), ["-Dpaperclip.patchonly=true -jar server.jar"])
        }).pipe(Effect.provide(stores(shipped)))
      )
  )

  it.live("the script fails on a wrong checksum and without a stable build", () =>
    live(
      Effect.gen(function* () {
        const wrong = yield* attempt(builds("0".repeat(64)))
        assert.strictEqual(wrong.status, 1)
        assert.include(wrong.stderr, "paper: the checksum of the download is wrong")
        const none = yield* attempt("[]")
        assert.strictEqual(none.status, 1)
        assert.include(none.stderr, "paper: version 1.21.11 has no stable build")
      }).pipe(Effect.provide(stores(shipped)))
    )
  )
})

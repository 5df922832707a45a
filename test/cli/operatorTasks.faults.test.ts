import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { gunzipSync } from "node:zlib"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { schemaVersion } from "../../src/controlPlane/store/migrations/migrate.ts"
import { receiver } from "../controlPlane/webhooks/receiver.ts"
import { startChild } from "../support/child.ts"
import { muster } from "../support/command.ts"
import { blueprintFile, softwareFile } from "../support/definitions.ts"
import { textOf } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { databaseEnv } from "../support/testDatabase.ts"
import { done, environment, onTerminal, onTerminalWith, refused, run, started } from "./support.ts"

const root = resolve(import.meta.dirname, "../..")

/** The memory limit of the blueprint that a test raises, in MiB. */
const MEMORY = "memory_limit: 128"

const blueprint = (id: string) => textOf("blueprints/demo-saved.yml").replace("id: demo-saved", `id: ${id}`)

const demo = Muster.layer(
  {
    software: {
      "demo.yml": textOf("software/demo.yml"),
      "noisy.yml": softwareFile("noisy", { install: { script: "printf 'left\\007right\\n'" } }),
      "crashing.yml": "software: { id: crashing, invocation: sh -c 'exit 3', online-signal: ready }",
      "absent.yml": "software: { id: absent, invocation: no-such-program, online-signal: ready }"
    },
    blueprints: {
      "demo.yml": textOf("blueprints/demo.yml"),
      "saved.yml": blueprint("saved"),
      "fleet.yml": blueprint("fleet"),
      "noisy.yml": blueprintFile("noisy", "noisy"),
      "fragile.yml": blueprint("fragile"),
      "absent.yml": blueprintFile("absent", "absent"),
      "mixins/defaults.yml": textOf("blueprints/mixins/defaults.yml")
    }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26200-26299", MUSTER_WEBHOOK_ALLOW_PRIVATE: "true" }
)

layer(demo, { excludeTestServices: true, timeout: "60 seconds" })("operator tasks", (it) => {
  describe("spec 8", () => {
    it.effect("1, 23: create and wait until the server runs; why no node fits", () =>
      Effect.gen(function* () {
        const { code, stderr, stdout } = yield* run(
          "servers",
          "create",
          "saved",
          "--name",
          "first",
          "--start",
          "--wait"
        )
        assert.strictEqual(code, 0, stderr)
        assert.match(stdout, /^ID .*\n\S+ +first +saved +running /)
        for (const step of ["place", "commit", "instance", "start"])
          assert.include(stderr, `${step}: done in`)

        const memory = ["--set", "limits.memory_limit=60000000"]
        const reasons = yield* refused(2, "servers", "create", "saved", ...memory)
        assert.match(reasons, /NODE +NAME +FITS .*REASON/)
        assert.match(reasons, /local +no .*memory/)
        const plan = yield* run("servers", "create", "saved", "--dry-run", "--json", ...memory)
        assert.strictEqual(plan.code, 2)
        assert.deepInclude(JSON.parse(plan.stdout).candidates[0], { node_name: "local", fits: false })
        assert.match(yield* refused(3, "servers", "create", "nope"), /^blueprint not found: nope/)
        assert.match(yield* refused(3, "servers", "create", "save"), /Did you mean saved\?$/)
        assert.match(yield* refused(64, "servers", "create", "saved", "--name", ""), /^name: [^`]*$/)
      })
    )

    it.effect(
      "5: a first start that is refused is not done, and the server is shown with the next step",
      () =>
        Effect.gen(function* () {
          const create = ["servers", "create", "absent", "--name", "refused", "--start", "--wait"]
          const reasons = yield* refused(1, ...create)
          assert.match(reasons, /the program no-such-program is not in PATH/)
          assert.notInclude(reasons, "start: done")
          assert.match(reasons, /upgrade the server: `muster servers upgrade \w{12}`/)
          assert.match(yield* refused(2, "servers", "start", "refused"), /`muster servers upgrade \w{12}`/)
          const shown = yield* done("servers", "show", "refused")
          assert.match(
            shown,
            /^condition: +cannot be started since .*upgrade the server: `muster servers upgrade \w+`/m
          )
          yield* done("servers", "delete", "refused", "--yes")
        })
    )

    it.effect("2, 3: follow the console with times, and send a line", () =>
      Effect.gen(function* () {
        const id = yield* done(
          "servers",
          "create",
          "saved",
          "--name",
          "talk",
          "--start",
          "--wait",
          "-o",
          "id"
        )
        const logs = yield* started("servers", "logs", "talk", "-f", "--tail", "50", "--timestamps")
        yield* logs.prints(/^20\d\d-\S+Z .*ready/m)
        yield* done("servers", "send", id, "say", "hello")
        yield* logs.prints(/^20\d\d-\S+Z .*hello$/m)
        yield* logs.signal("SIGINT")
        assert.strictEqual(yield* logs.exited(), 130)
        assert.match(yield* done("servers", "logs", id.slice(0, 8), "--tail", "1"), /hello$/)
        const opened = JSON.parse(
          yield* done("audit", "--action", "server.console", "--object", id, "--json")
        )
        assert.deepStrictEqual(
          opened.map(({ result }: Record<string, unknown>) => result),
          [{ status: 101 }]
        )
      }).pipe(Effect.scoped)
    )

    it.effect(
      "2: a key without the right console follows the stored lines, and leaves no refused request",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* done("servers", "create", "saved", "--start", "--wait", "-o", "id")
          const reader = ["keys", "create", "--name", "reader", "--scope", "ReadOnly"]
          const made = yield* muster(reader, { MUSTER_DATA_DIR: api.dataDir })
          const logs = yield* startChild(
            [process.execPath, join(root, "dist/main.js"), "servers", "logs", id, "-f"],
            {
              cwd: root,
              env: { MUSTER_URL: api.url, MUSTER_API_KEY: made.stdout.trim(), XDG_CONFIG_HOME: "/dev/null" }
            }
          )
          yield* logs.prints(/ready/)
          yield* done("servers", "send", id, "say", "first")
          yield* logs.prints(/first/)
          yield* done("servers", "send", id, "say", "second")
          yield* logs.prints(/first\n[\s\S]*second/)
          yield* done("servers", "delete", id, "--yes")
          assert.strictEqual(yield* logs.exited(), 0, logs.output())
          assert.strictEqual(logs.output().match(/\] first$/gm)?.length, 1, logs.output())
          assert.strictEqual(yield* done("audit", "--actor", "reader", "-o", "id"), "")
          assert.match(yield* done("events", "--server", id, "--topic", "deleted"), new RegExp(id))
          assert.match(yield* refused(3, "events", "--server", "misspelt"), /^server not found: misspelt/)
        }).pipe(Effect.scoped)
    )

    it.effect("3: a console on a terminal has a line to type; Ctrl-] leaves it", () =>
      Effect.gen(function* () {
        yield* done("servers", "create", "saved", "--name", "typed", "--start", "--wait")
        const console = yield* onTerminal("servers", "console", "typed")
        yield* console.prints(/Ctrl-\] leaves/)
        yield* console.prints(/> /)
        yield* console.write("say typed here\r")
        yield* console.prints(/\[Server\] typed here/)
        yield* console.write("\u001d")
        assert.strictEqual(yield* console.exited(), 0)
      }).pipe(Effect.scoped)
    )

    it.effect("4: figures of all servers, once into a pipe and live on a terminal", () =>
      Effect.gen(function* () {
        yield* done("servers", "create", "saved", "--name", "busy", "--start", "--wait")
        assert.match(
          yield* done("servers", "top"),
          /^ID +NAME +NODE +STATUS +CPU +MEMORY .*\n[\s\S]* busy +local +running /
        )
        const top = yield* onTerminal("servers", "top", "--interval", "1s")
        // The second drawing.
        yield* top.prints(/(?:\[H.?\[J[\s\S]*busy[\s\S]*){2}/)
        yield* top.write("\u0003")
        assert.strictEqual(yield* top.exited(), 130)
      }).pipe(Effect.scoped)
    )

    it.effect("5, 6, 28: why a deleted server crashed, and which key deleted it", () =>
      Effect.gen(function* () {
        const id = yield* done(
          "servers",
          "create",
          "saved",
          "--name",
          "doomed",
          "--start",
          "--wait",
          "-o",
          "id"
        )
        yield* done("servers", "send", id, "crash", "3")
        yield* done("servers", "wait", id, "--for", "offline", "--timeout", "20")
        assert.match(yield* refused(64, "servers", "delete", id), /--yes/)
        assert.include(yield* done("servers", "delete", id, "--yes"), `${id} is deleted; it can`)
        const crash = yield* done("servers", "crashes", id, "--lines", "5")
        assert.match(crash, new RegExp(`${id} +saved +exit code 3 +3 `))
        assert.include(crash, "crashing as asked")
        assert.strictEqual(yield* done("servers", "crashes", "doomed", "--lines", "5"), crash)
        assert.match(
          yield* refused(3, "servers", "crashes", "nothing"),
          /No deleted server with this id or name/
        )
        assert.match(yield* done("servers", "crashes", "--since", "1h", "-o", "jsonl"), new RegExp(id))
        const entries = yield* done("audit", "--action", "server.delete", "--object", "doomed", "--json")
        assert.match(yield* done("audit", "--object", "doomed"), new RegExp(` ${id} \\(doomed\\) +200`))
        const [entry, ...others] = JSON.parse(entries)
        assert.deepStrictEqual([entry.action, entry.result, others], ["server.delete", { status: 200 }, []])
        assert.notStrictEqual(entry.actor.name, "")
      })
    )

    it.effect("7, 8: raise a limit in a blueprint, and roll it out", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const ids = yield* Effect.forEach(["a", "b", "c"], (name) =>
          done("servers", "create", "fleet", "--name", `fleet-${name}`, "--start", "--wait", "-o", "id")
        )
        const file = join(api.folders.blueprints, "fleet.yml")
        const before = readFileSync(file, "utf8")
        assert.isTrue(before.includes("server:"), before)
        const raised = before.includes(MEMORY)
          ? before.replace(MEMORY, "memory_limit: 160")
          : before.replace("server:", "server:\n  limits: { memory_limit: 160 }")
        writeFileSync(file, raised)
        yield* done("blueprints", "check", api.folders.blueprints)
        yield* done("blueprints", "reload")
        assert.match(
          yield* done("blueprints", "rollout", "fleet", "--dry-run"),
          /^\S+ \(fleet-a\), \S+ \(fleet-b\), \S+ \(fleet-c\)\n.*\n {2}limits\.memory_limit +128 +160 +restart\n*$/
        )
        assert.match(yield* refused(64, "blueprints", "rollout", "fleet"), /Change 3 of 3 servers.*--yes/)
        const { code, stderr, stdout } = yield* run(
          "blueprints",
          "rollout",
          "fleet",
          "--max-parallel",
          "100%",
          "--wait",
          "--yes"
        )
        assert.strictEqual(code, 0, stderr)
        assert.match(stdout, /^state: +done$/m)
        assert.match(stdout, /^selector: +blueprint=fleet$/m)
        assert.match(stdout, /^revisions: +fleet \S+ \(\w+\) -> \S+ \(\w+\): 3$/m)
        assert.match(stdout, /^parallel: +3$/m)
        assert.include(stderr, "done: 3 of 3 done")
        const servers = JSON.parse(yield* done("servers", "list", "-l", "blueprint=fleet", "--json"))
        assert.deepStrictEqual(
          servers.map(({ id, limits, status }: Record<string, unknown>) => [id, status, limits]),
          ids.map((id) => [id, "running", { ...servers[0].limits, memory_limit: 160 }])
        )
      })
    )

    it.effect("7: a rollout after which a server crashes names the command that shows why", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* done("servers", "create", "fragile", "--start", "--wait")
        const crashing = blueprintFile("fragile", "crashing")
        writeFileSync(join(api.folders.blueprints, "fragile.yml"), crashing)
        yield* done("blueprints", "reload")
        assert.match(
          yield* refused(1, "blueprints", "rollout", "fragile", "--wait", "--yes"),
          /crashed: exit code 3\n`muster servers crashes \w{12} --lines 20` shows/
        )
        yield* done("servers", "delete", "--selector", "blueprint=fragile", "--yes")
      })
    )

    it.effect("2: an empty console is said to be empty, and where the reason is", () =>
      Effect.gen(function* () {
        const id = yield* done("servers", "create", "saved", "--wait", "-o", "id")
        const { code, stderr, stdout } = yield* run("servers", "logs", id)
        assert.deepStrictEqual([code, stdout], [0, ""])
        assert.match(stderr, new RegExp(`has no lines: \`muster servers show ${id}\``))
      })
    )

    it.effect("12: preview a drain, drain, and end the drain", () =>
      Effect.gen(function* () {
        const { code, stdout } = yield* run("nodes", "drain", "local", "--dry-run")
        assert.strictEqual(code, 0)
        assert.match(stdout, /^SERVER +TO /)
        assert.match(stdout, /^\S+ \(busy\) /m)
        yield* done("nodes", "drain", "local")
        assert.match(yield* done("nodes", "show", "local"), /^state: +connected, drained$/m)
        yield* done("nodes", "undrain", "local")
        assert.match(yield* done("nodes", "list"), /local +local +connected /)
      })
    )

    it.effect("a node is removed, and a key on a terminal revoked, after confirmation", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        assert.match(yield* refused(64, "nodes", "remove", "local"), /^Remove the node .* --yes/)
        assert.match(yield* refused(2, "nodes", "remove", "local", "--yes"), /^node /)

        const beside = { MUSTER_DATA_DIR: api.dataDir, ...(yield* databaseEnv(api.dataDir)) }
        yield* muster(["keys", "create", "--name", "spared"], { MUSTER_DATA_DIR: api.dataDir })
        for (const [answer, status, printed] of [
          ["n", 1, /Nothing was changed/],
          ["y", 0, /Key key_\w+ is revoked/]
        ] as const) {
          const asked = yield* onTerminalWith(beside, "keys", "revoke", "spared")
          yield* asked.prints(/Revoke the key key_\w+ \(spared\) permanently\?/)
          yield* asked.write(answer)
          assert.strictEqual(yield* asked.exited(), status, asked.output())
          assert.match(asked.output(), printed)
        }
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a stop or kill of a server that is not saved asks first, and says that it deletes the files",
      () =>
        Effect.gen(function* () {
          const id = yield* done(
            "servers",
            "create",
            "demo",
            "--name",
            "passing",
            "--start",
            "--wait",
            "-o",
            "id"
          )
          for (const action of ["stop", "kill"]) {
            const question = yield* refused(64, "servers", action, "passing")
            assert.match(
              question,
              /passing.*not saved: once it has stopped, it is deleted with its files.*--yes/
            )
          }
          const asked = yield* onTerminal("servers", "kill", "passing")
          yield* asked.prints(/it is deleted with its files/)
          yield* asked.write("n")
          assert.strictEqual(yield* asked.exited(), 1, asked.output())
          assert.strictEqual(JSON.parse(yield* done("servers", "show", id, "--json")).status, "running")
          assert.match(yield* done("servers", "stop", "passing", "--yes", "--wait"), / is deleted$/)
        }).pipe(Effect.scoped)
    )

    it.effect("a server is paused, unpaused and reset; an action says if it has nothing to do", () =>
      Effect.gen(function* () {
        const create = ["servers", "create", "saved", "--name", "again", "--start", "--wait", "-o", "id"]
        const id = yield* done(...create)
        const status = Effect.map(done("servers", "show", id, "--json"), (text) => JSON.parse(text).status)
        assert.strictEqual(yield* done("servers", "pause", "again"), `${id} is paused`)
        assert.strictEqual(yield* done("servers", "pause", "again"), `${id} is paused already`)
        assert.strictEqual(yield* status, "paused")
        assert.strictEqual(yield* done("servers", "unpause", "again"), `${id} is unpaused`)
        assert.strictEqual(yield* status, "running")
        assert.strictEqual(yield* done("servers", "start", id), `${id} is running already`)

        assert.match(yield* refused(64, "servers", "reset", "again"), /again.*everything.* --yes/)
        assert.strictEqual(yield* status, "running")
        assert.strictEqual(yield* done("servers", "reset", "again", "--yes"), `${id} is being reset`)
        yield* done("servers", "wait", id, "--for", "offline", "--timeout", "30")
        // Its files are reset once it is offline.
        for (const action of ["stop", "kill"])
          yield* eventually(done("servers", action, id), (said) => said === `${id} is offline already`)
        yield* done("servers", "delete", id, "--yes")
      })
    )

    it.effect("13: a webhook is sent, tested, changed and deleted", () =>
      Effect.gen(function* () {
        const hook = yield* receiver
        const made = JSON.parse(
          yield* done("webhooks", "create", "--url", `${hook.url}/hook`, "--topic", "crash", "--json")
        )
        assert.match(made.secret, /^whsec_/)
        assert.match(yield* done("webhooks", "test", made.id), /test .* 204 /)
        yield* eventually(
          () => hook.received().length,
          (count) => count >= 1
        )
        yield* done("webhooks", "patch", made.id, "--topic", "deleted", "--label", "team=a")
        assert.match(yield* done("webhooks", "show", made.id), /^label: +team=a$/m)
        assert.match(yield* done("webhooks", "deliveries", made.id, "-o", "id"), /^msg_\w+_test_\d+$/)
        assert.match(yield* refused(64, "webhooks", "delete", made.id), /--yes/)
        yield* done("webhooks", "delete", made.id, "--yes")
        yield* refused(3, "webhooks", "show", made.id)
      }).pipe(Effect.scoped)
    )

    it.effect("14: a key that can only restart one server", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* done(
          "servers",
          "create",
          "saved",
          "--name",
          "hers",
          "--start",
          "--wait",
          "-o",
          "id"
        )
        const beside = (...args: ReadonlyArray<string>) => muster(args, { MUSTER_DATA_DIR: api.dataDir })
        const create = [
          "keys",
          "create",
          "--name",
          "mate",
          "--scope",
          "Operator",
          "--allow",
          "power",
          "--server"
        ]
        const nowhere = yield* muster(["keys", "revoke", "nope"], { MUSTER_DATA_DIR: api.dataDir })
        assert.deepStrictEqual([nowhere.code, nowhere.stderr.slice(0, 19)], [3, "key not found: nope"])
        const unknown = yield* beside(...create, "absent")
        assert.deepStrictEqual([unknown.code, unknown.stdout], [3, ""])
        assert.match(unknown.stderr, /^server not found: absent\. /)
        const key = yield* beside(...create, "hers")
        assert.strictEqual(key.code, 0, key.stderr)
        const made = /key_\w+/.exec(key.stderr)?.[0] ?? ""
        const listed = (yield* beside("keys", "list", "-o", "jsonl")).stdout.trimEnd().split("\n")
        const record = listed.map((line) => JSON.parse(line)).find((one) => one.id === made)
        assert.deepStrictEqual([record?.servers, record?.state], [[id], "valid"])
        assert.include((yield* beside("keys", "list", "-o", "id")).stdout.split("\n"), made)
        assert.include(JSON.parse((yield* beside("db", "status", "--json")).stdout), {
          version: schemaVersion
        })
        const env = { MUSTER_URL: api.url, MUSTER_API_KEY: key.stdout.trim() }
        const restarted = yield* muster(["servers", "restart", "hers", "--wait"], env)
        assert.deepStrictEqual([restarted.code, restarted.stdout], [0, `${id} restarts\n${id} is running\n`])
        assert.strictEqual((yield* muster(["servers", "delete", id, "--yes"], env)).code, 4)
        assert.strictEqual((yield* muster(["servers", "show", "first"], env)).code, 3)
        const revoked = yield* beside("keys", "revoke", "mate")
        assert.strictEqual(revoked.stdout, `Key ${made} is revoked.\n`)
      })
    )

    it.effect("16, 25, 26: act on all servers of a selector; an ambiguous name lists its candidates", () =>
      Effect.gen(function* () {
        const labels = ["--label", "run=42", "--label", "team=a"]
        const ids = yield* Effect.forEach(["twin", "twin", "solo"], (name) =>
          done("servers", "create", "saved", "--name", name, ...labels, "--start", "--wait", "-o", "id")
        )
        const [one = "", two = "", three = ""] = ids
        const several = yield* refused(2, "servers", "show", "twin")
        assert.include(several, `several servers match twin: ${one} (twin), ${two} (twin)`)
        assert.strictEqual(
          yield* done("servers", "list", "-l", "label=run=42", "-l", "status=running", "-o", "id"),
          ids.join("\n")
        )
        assert.strictEqual(yield* done("servers", "list", "--search", "sol", "-o", "id"), three)
        assert.match(yield* refused(64, "servers", "stop", "-l", "label=run=42"), /^Stop 3 servers \(.*--yes/)
        assert.match(yield* refused(64, "servers", "stop", one, "-l", "label=run=42"), /not both/)
        assert.match(yield* refused(64, "servers", "stop", "-l", "team=a"), /is not a condition/)
        yield* done("servers", "stop", "-l", "label=run=42", "--yes", "--wait")
        assert.strictEqual(
          yield* done("servers", "list", "-l", "label=run=42", "-l", "status=offline", "-o", "id"),
          ids.join("\n")
        )
        yield* done("servers", "delete", "-l", "label=run=42", "--yes")
        assert.strictEqual(yield* done("servers", "list", "-l", "label=run=42", "-o", "id"), "")
      })
    )

    it.effect("27: a list reaches a pipe completely; a reader that leaves ends it quietly", () =>
      Effect.gen(function* () {
        const all = JSON.parse(yield* done("servers", "list", "--json"))
        assert.isAbove(all.length, 3)
        assert.strictEqual((yield* done("servers", "list", "--limit", "2", "-o", "id")).split("\n").length, 2)
        const events = yield* startChild(
          [
            "sh",
            "-c",
            `"$@" | head -n 1; echo "status $?"`,
            "sh",
            process.execPath,
            join(root, "dist/main.js"),
            "events",
            "-f",
            "--since",
            "1h"
          ],
          { cwd: root, env: { ...(yield* environment), XDG_CONFIG_HOME: "/dev/null" } }
        )
        assert.strictEqual(yield* events.exited(), 0)
        assert.match(events.output(), /^20\d\d-\S+Z +\d+ +\S+ +status +installing\nstatus 0\n$/m)
        const future = yield* run("events", "--since", "2099-01-01T00:00:00Z")
        assert.deepStrictEqual([future.code, future.stdout], [0, ""])
        assert.match(
          yield* refused(64, "events", "--since", "yesterday"),
          /Expected: now, a time such as 24h/
        )
      }).pipe(Effect.scoped)
    )

    it.effect("32: the configuration with its origins, and an archive without secrets", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const changed = yield* done("config", "--changed")
        assert.match(changed, /^APP_ADMIN_API_KEY +\(secret\) +environment$/m)
        assert.match(changed, /^MUSTER_OVERCOMMIT_MEMORY +1000 +environment$/m)
        const archive = join(yield* temporaryFolder, "report.tar.gz")
        assert.strictEqual(yield* done("debug", archive), archive)
        assert.strictEqual(statSync(archive).mode & 0o777, 0o600)
        const content = gunzipSync(readFileSync(archive)).toString("latin1")
        for (const name of ["settings.json", "nodes.json", "warnings.json", "log.txt", "metrics.txt"]) {
          assert.include(content, name)
        }
        assert.include(content, "listens on http://")
        assert.notInclude(content, api.key)
        assert.match(yield* refused(1, "debug", archive), /already exists/)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a context has the service and its key, in a file of its owner; MUSTER_URL takes precedence",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const folder = yield* temporaryFolder
          const env = { XDG_CONFIG_HOME: folder, MUSTER_DATA_DIR: join(folder, "none") }
          const keyFile = join(folder, "key")
          writeFileSync(keyFile, `${api.key}\n`)
          const added = yield* muster(
            ["context", "add", "test", "--url", api.url, "--key-file", keyFile],
            env
          )
          assert.strictEqual(added.code, 0, added.stderr)
          assert.strictEqual(statSync(join(folder, "muster/contexts.json")).mode & 0o777, 0o600)
          const listed = yield* muster(["context", "list"], env)
          assert.notInclude(listed.stdout, api.key)
          assert.strictEqual((yield* muster(["nodes", "list"], env)).code, 0)
          const elsewhere = yield* muster(["nodes", "list"], { ...env, MUSTER_URL: "http://127.0.0.1:9" })
          assert.strictEqual(elsewhere.code, 4)
          assert.include(elsewhere.stderr, "there is no key")
          const others = ["one", "two", "three", "four"]
          const otherKey = join(folder, "other-key")
          writeFileSync(otherKey, "another\n")
          const add = (name: string) =>
            muster(["context", "add", name, "--url", api.url, "--key-file", otherKey], env)
          yield* Effect.forEach(others, add, { concurrency: "unbounded" })
          const names = (yield* muster(["context", "list", "-o", "id"], env)).stdout.trimEnd().split("\n")
          assert.sameMembers(names, ["test", ...others])
          yield* muster(["context", "remove", "test"], env)
          assert.notInclude(readFileSync(join(folder, "muster/contexts.json"), "utf8"), api.key)
          assert.strictEqual((yield* muster(["context", "use", "test"], env)).code, 3)
        }).pipe(Effect.scoped)
    )

    it.effect("the output of an installation does not act on the terminal", () =>
      Effect.gen(function* () {
        const { code, stderr, stdout } = yield* run("servers", "create", "noisy", "--wait", "-o", "id")
        assert.strictEqual(code, 0, stderr)
        assert.match(stderr, /^ {2}leftright$/m)
        assert.strictEqual(yield* done("servers", "install-log", stdout.trim()), "leftright")
      })
    )

    it.effect("a reload of invalid files fails with 1, as a check of them", () =>
      Effect.gen(function* () {
        const { folders } = yield* Muster
        for (const [command, file] of [
          ["software", join(folders.software, "bad.yml")],
          ["blueprints", join(folders.blueprints, "bad.yml")]
        ] as const) {
          writeFileSync(file, "nothing: 1\n")
          const message = yield* Effect.ensuring(
            refused(1, command, "reload"),
            Effect.sync(() => rmSync(file))
          )
          assert.match(message, /bad\.yml/)
          assert.notMatch(message, /\?\./)
          yield* done(command, "reload")
        }
      })
    )

    it.effect("blueprints check needs no service; each problem has file, line and column", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        writeFileSync(join(folder, "bad.yml"), "blueprint: {id: x, name: X}\nserver:\n  softwre: paper\n")
        const { code, stderr, stdout } = yield* muster(["blueprints", "check", folder])
        assert.strictEqual(code, 1)
        assert.match(stdout, /bad\.yml:3:3: error: unknown key `softwre`; did you mean `software`\?\n/)
        assert.match(stderr, /^1 file checked: \d+ errors?, 0 warnings/)
        const empty = yield* muster(["blueprints", "check", yield* temporaryFolder])
        const checked = (...path: ReadonlyArray<string>) => muster(["blueprints", "check", join(...path)])
        const bad = yield* checked(folder, "bad.yml")
        assert.deepStrictEqual(bad, { code, stdout, stderr })
        const good = yield* checked(root, "blueprints/demo-saved.yml")
        assert.deepStrictEqual(good, {
          code: 0,
          stdout: "",
          stderr: "1 file checked: 0 errors, 0 warnings. Next: `muster blueprints reload`.\n"
        })
        writeFileSync(join(folder, "good.yml"), textOf("software/demo.yml"))
        const beside = yield* muster(["blueprints", "check", "--kind", "software", join(folder, "good.yml")])
        assert.strictEqual(beside.code, 0)
        assert.match(
          beside.stderr,
          /^1 file checked: 0 errors, 0 warnings\. But other files have \d+ errors?: `muster blueprints check .+` shows them\.$/m
        )
        const below = join(folder, "software/below")
        mkdirSync(below, { recursive: true })
        writeFileSync(join(below, "near.yml"), textOf("software/demo.yml"))
        const here = { npm_lifecycle_event: "muster", INIT_CWD: below }
        const near = yield* muster(["blueprints", "check", "near.yml"], here)
        assert.deepStrictEqual(near, {
          code: 0,
          stdout: "",
          stderr: "1 file checked: 0 errors, 0 warnings. Next: `muster software reload`.\n"
        })
        mkdirSync(join(folder, "software/.old"))
        writeFileSync(join(folder, "software/.old/unread.yml"), "")
        assert.strictEqual((yield* checked(folder, "software/.old/unread.yml")).code, 64)
        const none = yield* checked(folder, "none.yml")
        assert.strictEqual(none.code, 3)
        assert.match(
          none.stderr,
          /^no such file or folder: .+none\.yml\. Name a definition file, or a folder of them\.$/m
        )
        const other = yield* checked(root, "package.json")
        assert.deepStrictEqual([other.code, other.stdout], [64, ""])
        assert.include(other.stderr, "the name of one ends with .yml or .yaml")
        assert.strictEqual(empty.code, 1)
        assert.match(empty.stderr, /^no definition files in /)
        assert.deepStrictEqual((yield* muster(["blueprints", "check", root])).code, 0)
      }).pipe(Effect.scoped)
    )
  })
})

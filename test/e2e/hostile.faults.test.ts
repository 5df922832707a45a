import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { afterAll } from "vitest"
import {
  blueprintFile,
  consoleServer,
  definitions,
  softwareFile,
  writeFiles
} from "../support/definitions.ts"
import { eventsAre, stalledSubscriber, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { mainProcess, residentBytes, serverProcesses } from "../support/processes.ts"
import { type Service, startService } from "../support/Service.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  installed,
  logsHave,
  logsOf,
  power,
  powered,
  running,
  statusOf
} from "../support/servers.ts"

const outside = mkdtempSync(join(tmpdir(), "muster-test-"))
afterAll(() => rmSync(outside, { recursive: true, force: true }))

const idsOf = (api: Service) =>
  Effect.map(expectStatus(api, 200, "GET", "/api/blueprints?limit=1000"), (answer) =>
    answer.json.data.map((blueprint: { readonly metadata: { readonly id: string } }) => blueprint.metadata.id)
  )

const hostileFiles = {
  "binary.yml": Uint8Array.from({ length: 4096 }, (_, index) => (index * 31) % 256),
  "large.yml": `blueprint: { id: large, name: Large }\nannotations: { text: "${"x".repeat(10 * 1024 * 1024)}" }\n`,
  "bomb.yml": [
    "blueprint: { id: bomb, name: Bomb }",
    "annotations:",
    "  a: &a [x, x, x, x, x, x, x, x, x, x]",
    ..."bcdefghij"
      .split("")
      .map((name, index) => `  ${name}: &${name} [${Array(10).fill(`*${"abcdefghi"[index]}`).join(", ")}]`),
    ""
  ].join("\n"),
  "cycle/one.yml": "mixin: { id: one }\nextends: [two]\n",
  "cycle/two.yml": "mixin: { id: two }\nextends:\n  - one\n",
  "twin-a.yml": "blueprint: { id: twin, name: A }\nserver: { software: game, version: '1' }\n",
  "twin-b.yml": "blueprint: { id: twin, name: B }\nserver: { software: game, version: '1' }\n"
}

describe("spec 4.4: reload: hostile files", () => {
  it.live(
    "the start logs invalid files and serves the others; a reload names each place and changes nothing",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions({
          blueprints: { ...hostileFiles, "good.yml": blueprintFile("good", "game") },
          software: { "game.yml": softwareFile("game") }
        })
        const api = yield* startService({ env: folders.env })
        const before = yield* idsOf(api)
        assert.include(before, "good")
        for (const id of ["large", "bomb"]) assert.notInclude(before, id)
        for (const file of ["binary.yml", "large.yml", "bomb.yml", "cycle/one.yml"]) {
          assert.include(api.output(), file)
        }
        yield* writeFiles(folders.blueprints, { "late.yml": blueprintFile("late", "game") })
        const { json } = yield* expectStatus(api, 422, "POST", "/api/blueprints/reload")
        for (const place of [
          /^binary\.yml:\d+:\d+: /m,
          /^large\.yml:1:1: /m,
          /^bomb\.yml:\d+:\d+: /m,
          /^cycle\/(one|two)\.yml:[23]:\d+: .*one.*two|two.*one/m,
          /^twin-[ab]\.yml:1:\d+: .*twin/m
        ]) {
          assert.match(json.detail, place)
        }
        assert.notInclude(json.detail, folders.blueprints)
        assert.deepStrictEqual(yield* idsOf(api), before)
        for (const file of Object.keys(hostileFiles)) rmSync(join(folders.blueprints, file))
        yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
        assert.deepStrictEqual(yield* idsOf(api), ["good", "late"])
      }).pipe(Effect.scoped)
  )
})

const MB = 1_000_000
const PRINTED = 300 * MB

const definitionsOfHostiles = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "hanging.yml": softwareFile("hanging", {
      install: { timeout: 1, script: "(setsid sleep 1000 &)\necho waiting\nsleep 1000" }
    }),
    "failing.yml": softwareFile("failing", { install: { script: "echo half > half\nexit 42" } }),
    "chatty.yml": softwareFile("chatty", {
      files: { "server.sh": consoleServer },
      install: {
        script: `echo first\nyes 'a line of the install script' | head -c ${PRINTED}\necho\necho last`
      }
    }),
    "deaf.yml": softwareFile("deaf", {
      files: { "server.sh": "trap '' TERM INT HUP\necho ready\nwhile :; do read -r line; done" }
    }),
    "forking.yml": softwareFile("forking", {
      files: {
        "server.sh":
          "setsid sh -c 'sleep 1000 & sleep 1000' &\n(setsid nohup sleep 1000 >/dev/null 2>&1 &)\necho ready\nread -r line"
      }
    }),
    "dying.yml": softwareFile("dying", { invocation: "sh -c 'echo no; exit 3'" }),
    "breathless.yml": softwareFile("breathless", {
      files: {
        "server.sh":
          "printf 'ready\\n'\nprintf 'no end in sight'\nread -r line\nprintf ' but for one'\nexit 0"
      }
    }),
    "garbled.yml": softwareFile("garbled", {
      files: {
        "server.sh":
          "echo ready\nprintf 'a\\377\\376b \\303\\050 \\000 \\033[31mred\\033[0m\\n'\nwhile read -r line; do :; done"
      }
    }),
    "unread.yml": softwareFile("unread", { invocation: "sh -c 'echo ready; exec sleep 1000'" }),
    "flooding.yml": softwareFile("flooding", {
      files: {
        "server.sh": "echo ready\nseq 1 100000\necho done\nwhile read -r line; do echo got $line; done"
      }
    }),
    "escaping.yml": softwareFile("escaping", {
      files: {
        "server.sh": `rm -rf config\nln -s ${outside} config\nln -sf ${outside}/victim.properties direct.properties\n${consoleServer}`
      }
    })
  },
  blueprints: {
    "game.yml": blueprintFile("game", "game"),
    ...Object.fromEntries(
      [
        "hanging",
        "failing",
        "chatty",
        "deaf",
        "forking",
        "dying",
        "breathless",
        "garbled",
        "unread",
        "flooding"
      ].map((id) => [`${id}.yml`, blueprintFile(id, id)])
    ),
    "escaping.yml": blueprintFile("escaping", "escaping", {
      server: { configs: { "config/victim.properties": { parser: "properties", find: { motd: "patched" } } } }
    }),
    "escaping-file.yml": blueprintFile("escaping-file", "escaping", {
      server: { configs: { "direct.properties": { parser: "properties", find: { motd: "patched" } } } }
    })
  }
}

const installOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/install`), (answer) => answer.json)

const processesOf = (api: Service, id: string) =>
  Effect.sync(() => serverProcesses(api.dataDir).filter((process) => process.server === id))

const installProcesses = (api: Service) =>
  Effect.sync(() => serverProcesses(api.dataDir).filter(({ server }) => server.startsWith("install:")))

const metric = (api: Service, name: string) =>
  Effect.map(expectStatus(api, 200, "GET", "/metrics"), ({ text }) =>
    Number(new RegExp(`^${name} (\\S+)`, "m").exec(text)?.[1])
  )

/** Asserts that the service still works. */
const works = Effect.fnUntraced(function* (api: Service) {
  const id = yield* running(api, "game")
  yield* commands(api, id, "still there")
  yield* logsHave(api, id, "got still there")
  yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
})

layer(Muster.layer(definitionsOfHostiles, { MUSTER_STREAMS_PER_KEY: "2000" }), {
  excludeTestServices: true,
  timeout: "60 seconds"
})("hostile software", (it) => {
  describe("blueprints, Software: install scripts", () => {
    it.effect("a script that hangs is killed at its timeout with all its processes", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "hanging", { start: true })
        yield* becomes(api, id, "offline")
        const install = yield* installOf(api, id)
        assert.strictEqual(install.phase, "failed")
        assert.match(install.failure_reason, /^install script timed out after 1 s \(node .*\): /)
        assert.deepStrictEqual(yield* installProcesses(api), [])
        assert.isFalse(existsSync(join(api.dataDir, "node", "base", "hanging")))
        assert.strictEqual((yield* power(api, id, "start")).status, 409)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
      })
    )

    it.effect("a script that hangs is killed by a deletion and leaves nothing", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "hanging")
        yield* eventually(installProcesses(api), (found) => found.length > 0)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        yield* eventually(installProcesses(api), (found) => found.length === 0)
      })
    )

    it.effect("a script that fails leaves no base behind", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "failing")
        yield* becomes(api, id, "offline")
        const install = yield* installOf(api, id)
        assert.deepInclude(install, { phase: "failed", exit_code: 42 })
        assert.match(install.failure_reason, /^install script exited with 42 \(node .*\): /)
        assert.isFalse(existsSync(join(api.dataDir, "node", "base", "failing", "1.0")))
      })
    )

    it.effect("a script that prints 300 MB has a bounded log and takes bounded memory", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const pid = api.process.pid ?? 0
        const before = residentBytes(pid)
        let peak = 0
        const id = yield* create(api, "chatty")
        yield* eventually(
          Effect.tap(statusOf(api, id), () =>
            Effect.sync(() => {
              peak = Math.max(peak, residentBytes(pid))
            })
          ),
          (status) => status === "offline"
        )
        assert.strictEqual((yield* installOf(api, id)).phase, "ready")
        assert.isBelow(peak - before, PRINTED / 2)
        assert.isBelow(statSync(join(api.dataDir, "node", "servers", id, "install.log")).size, 2 * MB)
        const logs = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs`)
        assert.strictEqual(logs.json.data[0], "first")
        const { total_pages } = logs.json.meta.pagination
        const last = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${id}/install/logs?page=${total_pages}`
        )
        assert.strictEqual(last.json.data.at(-1), "last")
      })
    )
  })

  describe("spec 3.5: processes", () => {
    it.effect("a process that ignores its stop command is killed after wait_seconds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* subscribe(api)
        const id = yield* running(api, "deaf")
        yield* powered(api, id, "stop", 1)
        yield* eventsAre(stream, id, ["installing", "offline", "starting", "running", "stopping", "offline"])
        assert.deepStrictEqual(yield* processesOf(api, id), [])
      })
    )

    it.effect("children that leave the process group end with the process", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const end of ["kill", "exit"] as const) {
          const id = yield* running(api, "forking")
          const sleepers = Effect.map(processesOf(api, id), (found) =>
            found.filter((process) => process.command.startsWith("sleep"))
          )
          yield* eventually(sleepers, (found) => found.length === 3)
          yield* end === "kill" ? powered(api, id, "kill") : commands(api, id, "end")
          yield* becomes(api, id, "offline")
          assert.deepStrictEqual(yield* processesOf(api, id), [])
        }
      })
    )

    it.effect("a process that exits at once is a crash with its exit code", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* subscribe(api)
        const id = yield* create(api, "dying", { start: true })
        yield* eventsAre(stream, id, ["installing", "offline", "starting", "crash exit code 3", "offline"])
        assert.deepStrictEqual(yield* logsOf(api, id), ["no", "[ended: exit code 3]"])
      })
    )

    it.effect("a config patch does not follow a link of the server out of its folder", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* writeFiles(outside, { "victim.properties": "motd=untouched\n" })
        for (const blueprint of ["escaping", "escaping-file"]) {
          const id = yield* installed(api, blueprint)
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          yield* powered(api, id, "stop")
          yield* becomes(api, id, "offline")
          const refused = yield* power(api, id, "start")
          assert.include([409, 422], refused.status, refused.text)
          assert.include(refused.json.detail, ".properties")
          assert.notInclude(refused.text, outside)
          assert.strictEqual(yield* statusOf(api, id), "offline")
        }
        assert.strictEqual(readFileSync(join(outside, "victim.properties"), "utf8"), "motd=untouched\n")
        assert.isFalse(existsSync(join(outside, "victim.properties.tmp")))
      })
    )
  })

  describe("spec 3.10: GET .../logs and POST .../commands", () => {
    it.effect("a line without its end is shown and counts as one line", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "breathless")
        yield* eventually(logsOf(api, id), (lines) => lines.length === 2)
        assert.deepStrictEqual(yield* logsOf(api, id), ["ready", "no end in sight"])
        yield* commands(api, id, "on")
        yield* becomes(api, id, "offline")
        assert.deepStrictEqual(yield* logsOf(api, id), [
          "ready",
          "no end in sight but for one",
          "[ended: exit code 0]"
        ])
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        assert.include(yield* logsOf(api, id), "no end in sight but for one")
        yield* powered(api, id, "kill")
      })
    )

    it.effect("bytes that are not UTF-8 become U+FFFD, and control sequences are removed", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "garbled")
        yield* logsHave(api, id, "a\uFFFD\uFFFDb \uFFFD(  red")
        yield* powered(api, id, "kill")
      })
    )

    it.effect("a server that never reads its console refuses commands once the pipe is full", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "unread")
        const lines = Array.from({ length: 100 }, () => "x".repeat(4096))
        const refused = yield* commands(api, id, ...lines)
        assert.strictEqual(refused.status, 409)
        assert.match(
          refused.json.detail,
          /^\d+ of 100 commands were written(?:, and a part of the next)?; the server does not read its console$/
        )
        yield* works(api)
        yield* powered(api, id, "kill")
        yield* becomes(api, id, "offline")
      })
    )

    it.effect("100,000 lines at once are all counted", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "flooding")
        yield* logsHave(api, id, "done")
        const page = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/logs?page=1&per_page=3`)
        assert.deepStrictEqual(page.json.data, ["99999", "100000", "done"])
        assert.strictEqual(page.json.meta.pagination.total, 100_002)
        const first = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/logs?page=33334&per_page=3`)
        assert.deepStrictEqual(first.json.data, ["ready", "1", "2"])
        yield* commands(api, id, "still there")
        yield* logsHave(api, id, "got still there")
        yield* powered(api, id, "kill")
      })
    )
  })

  describe("spec 5.2: subscribers", () => {
    it.effect("1,000 connections that open and close release their resources", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const subscribers = metric(api, "muster_event_subscribers")
        const before = yield* subscribers
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* Effect.forEach(Array.from({ length: 1000 }), () => stalledSubscriber(api), {
              concurrency: 50,
              discard: true
            })
            yield* eventually(subscribers, (now) => now === before + 1000)
            yield* works(api)
          })
        )
        yield* eventually(subscribers, (now) => now === before)
      })
    )
  })

  it.effect("after these tests, no process of a server that does not run is left", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      yield* works(api)
      const { json } = yield* expectStatus(api, 200, "GET", "/api/servers?include=status")
      const isUp = new Set(
        json
          .filter((server: { readonly status: string }) => server.status === "running")
          .map((server: { readonly id: string }) => server.id)
      )
      assert.deepStrictEqual(
        serverProcesses(api.dataDir).filter(({ server }) => !isUp.has(server)),
        []
      )
      for (const id of isUp) assert.isDefined(yield* mainProcess(api.dataDir, String(id)))
      assert.isNull(api.process.exitCode)
    })
  )
})

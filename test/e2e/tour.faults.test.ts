import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { checkout, npmStart, processesBelow, type Started } from "../support/checkout.ts"
import { startChild } from "../support/child.ts"
import { writeFiles } from "../support/definitions.ts"
import { printed, textOf } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freePorts } from "../support/ports.ts"
import { requestTo } from "../support/Service.ts"
import { becomes, create, expectStatus, running, statusOf } from "../support/servers.ts"

/** `npm start` in a fresh checkout, shared by the tests below. */
class Tour extends Context.Service<Tour, Started>()("test/Tour") {
  static readonly layer = Layer.effect(Tour, Effect.flatMap(checkout, npmStart))
}

/** Topics and details of the events that the tour prints, in their order. */
const eventsIn = (output: string) =>
  [...output.matchAll(/^\S+Z {2}\d+ {2}\w+ {2}(\w+) +(.*)$/gm)].map(([, topic, detail]) =>
    topic === "status" ? detail : `${topic}: ${detail}`
  )

const started = ["installing", "offline", "starting", "running"]

layer(Tour.layer, { excludeTestServices: true, timeout: "60 seconds" })("README", (it) => {
  describe("Start", () => {
    it.effect("the two commands work as printed; the first start prints the path of the new key", () =>
      Effect.gen(function* () {
        assert.strictEqual(printed("README.md", "start"), "npm ci && npm start\n")
        assert.strictEqual(printed("README.md", "test"), "npm ci && npm test\n")
        assert.hasAnyKeys(JSON.parse(textOf("package.json")).scripts, ["start", "test"])
        const { npm, folder } = yield* Tour
        assert.include(npm.output(), join(folder, "data/admin.key"))
      })
    )
  })

  describe("Tour", () => {
    for (const shell of ["bash", "sh"]) {
      it.effect(
        `the tour works as printed, in ${shell}`,
        () =>
          Effect.gen(function* () {
            const service = yield* Tour
            assert.isAtMost(printed("README.md", "tour").trimEnd().split("\n").length, 15)
            const child = yield* startChild([shell, "-s"], {
              cwd: service.folder
            })
            yield* child.write(`set -e\n${printed("README.md", "tour")}exit\n`)
            assert.strictEqual(yield* child.exited("80 seconds"), 0, child.output())
            const output = child.stdout()
            assert.match(output, /demo: ready on .*\n\[Server\] hello/)
            assert.match(output, /exit code 3 +3 [\s\S]*crashing as asked/)
            const expected = [...started, "crash: exit code 3", "offline", "starting", "running"]
            assert.deepStrictEqual(eventsIn(output), expected)
            const [, id = ""] = /^(\w{12}) +lobby +demo-saved +running/m.exec(output) ?? []
            assert.strictEqual(yield* statusOf(service, id), "running")
            yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
            yield* becomes(service, id, "gone")
          }).pipe(Effect.scoped),
        90_000
      )
    }
  })
})

describe("README, Let a friend on the network join", () => {
  it.live(
    "new servers get the address of the machine, as printed; existing servers keep theirs",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkout
        // Replaces the download: the demo server with the name of the game.
        yield* writeFiles(folder, {
          "software/flying-squid.yml": textOf("software/demo.yml").replace("id: demo", "id: flying-squid")
        })
        const before = yield* Effect.scoped(
          Effect.gen(function* () {
            const service = yield* npmStart(folder)
            const id = yield* running(service, "demo-saved")
            yield* service.npm.signalAll("SIGINT")
            assert.strictEqual(yield* service.npm.exited(), 0)
            return id
          })
        )
        const [port, first] = [yield* freePorts(1), yield* freePorts(4)]
        const command = printed("README.md", "friend")
          .replace("192.168.1.20", "127.0.0.2")
          .replace("25565-25664", `${first}-${first + 3}`)
        const npm = yield* startChild(["bash", "-c", command], {
          cwd: folder,
          env: { MUSTER_PORT: String(port) }
        })
        const [, url = ""] = yield* npm.prints(/listens on (http:\S+)[\s\S]*\/docs/)
        const service = {
          request: requestTo(url, readFileSync(join(folder, "data/admin.key"), "utf8").trim())
        }
        const creation = yield* startChild(["bash", "-c", printed("README.md", "minecraft")], {
          cwd: folder
        })
        assert.strictEqual(yield* creation.exited("60 seconds"), 0, creation.output())
        const [, id = "", address = ""] =
          /^(\w{12}) +world .* running .* (127\.0\.0\.2:\d+)/m.exec(creation.stdout()) ?? []
        const answer = yield* requestTo(`http://${address}`, "")("GET", "/")
        assert.include(answer.text, `Hello from ${id}`)
        const kept = yield* expectStatus(service, 200, "GET", `/api/servers/${before}`)
        assert.strictEqual(kept.json.allocations.default.ip, "127.0.0.1")
        yield* npm.signalAll("SIGINT")
        yield* npm.exited()
      }).pipe(Effect.scoped),
    90_000
  )
})

describe("docs/running.md, Stop the service", () => {
  it.live.each([
    ["SIGTERM to npm", "signal", "SIGTERM"],
    ["SIGINT to npm", "signal", "SIGINT"],
    ["Ctrl-C, which every process of the terminal gets", "signalAll", "SIGINT"]
  ] as const)(
    "%s stops the service and its servers",
    ([, to, signal]) =>
      Effect.gen(function* () {
        const service = yield* npmStart(yield* checkout)
        const kept = yield* running(service, "demo-saved")
        const passing = yield* create(service, "demo", { start: true })
        yield* becomes(service, passing, "running")
        assert.strictEqual(yield* statusOf(service, kept), "running")
        yield* service.npm[to](signal)
        assert.strictEqual(yield* service.npm.exited(), 0, service.npm.output())
        yield* eventually(
          Effect.sync(() => processesBelow(service.folder)),
          (left) => left.length === 0
        )
        const console = readFileSync(join(service.folder, "data/node/servers", kept, "console.log"), "utf8")
        assert.match(console, /demo: stopping\n\[stopped as requested: exit code 0\]\n$/)
      }),
    90_000
  )
})

import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { ServerEvent } from "../../src/domain/ServerEvent.ts"
import { checkout, npmStart, processesBelow, type Started } from "../support/checkout.ts"
import { startChild } from "../support/child.ts"
import { cells } from "../support/command.ts"
import { writeFiles } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { readmeBlocks } from "../support/readme.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  logsHave,
  powered,
  running,
  statusOf
} from "../support/servers.ts"

/** `npm start` in a fresh checkout, which the tests below share as the parts of the README do. */
class Tour extends Context.Service<Tour, Started>()("test/Tour") {
  static readonly layer = Layer.effect(Tour, Effect.flatMap(checkout, npmStart))
}

const tour = readmeBlocks("sh", { from: "<!-- tour:begin -->", to: "<!-- tour:end -->" })
const keyCommands = readmeBlocks("sh", { from: "### Keys", to: "\n## " })
const minimalPair = readmeBlocks("yaml", { from: "A minimal pair", to: "\n## " })

const decodeEvent = Schema.decodeUnknownSync(Schema.fromJsonString(ServerEvent))

/** Events that the background `curl` of the tour has printed, each server's by itself, in order of creation. */
const eventsIn = (output: string) => {
  const servers = new Map<string, Array<ServerEvent>>()
  for (const [, text = ""] of output.matchAll(/data: (\{"Topic".*\})$/gm)) {
    const event = decodeEvent(text)
    const its = servers.get(event.Data.server_id) ?? []
    servers.set(event.Data.server_id, [...its, event])
  }
  return [...servers]
}

const brief = (event: ServerEvent) => (event.Topic === "status" ? event.Data.payload : event.Topic)

layer(Tour.layer, { excludeTestServices: true, timeout: "60 seconds" })("README", (it) => {
  describe("Five-minute tour", () => {
    it.effect("begins with a key that the first start has made and named", () =>
      Effect.gen(function* () {
        const { npm, folder } = yield* Tour
        assert.include(npm.output(), `it is in ${join(folder, "data/admin.key")}`)
      })
    )

    // A block is pasted once the stream of the block before it is open, as a person would see it to be.
    for (const shell of ["bash", "sh"]) {
      it.effect(
        `works as printed, in one ${shell}`,
        () =>
          Effect.gen(function* () {
            const service = yield* Tour
            const [first = "", ...others] = tour.map(service.asPrinted)
            assert.strictEqual(others.length, 2)
            const child = yield* startChild([shell, "-s"], { cwd: service.folder })
            yield* child.write(first)
            yield* child.says(/^: connected$/m)
            for (const block of others) yield* child.write(block)
            yield* child.endInput
            assert.strictEqual(yield* child.exited("60 seconds"), 0, child.output())

            const output = child.output()
            assert.match(output, /^\[\{"id":"node-\w+","name":"local",/m)
            assert.match(output, /^\{"meta":\{"pagination":.*"data":\[\{"metadata":\{"id":"demo",/m)
            assert.match(output, /"data":\[.*"demo: ready on .*"\[Server\] hello"\]\}/)
            const [passing, kept, ...more] = eventsIn(output)
            assert.deepStrictEqual(more, [])
            assert.include(output, `created ${passing?.[0]}\n`)
            assert.deepStrictEqual(passing?.[1].map(brief), [
              "installing",
              "offline",
              "starting",
              "running",
              "crash",
              "offline",
              "deleted"
            ])
            const crash = passing?.[1].find((event) => event.Topic === "crash")
            assert.strictEqual(crash?.Data.payload.exit_code, 3)
            assert.strictEqual(crash?.Data.payload.reason, "exit code 3")
            assert.deepStrictEqual(kept?.[1].map(brief), [
              "installing",
              "offline",
              "starting",
              "running",
              "stopping",
              "offline",
              "deleted"
            ])
            assert.deepStrictEqual((yield* service.request("GET", "/api/servers")).json, [])
          }).pipe(Effect.scoped),
        90_000
      )
    }
  })

  describe("Keys", () => {
    it.effect(
      "the printed commands make, list and revoke a key beside the running service",
      () =>
        Effect.gen(function* () {
          const service = yield* Tour
          const [createKey = "", listKeys = "", revokeKey = "", ...more] = keyCommands
            .join("")
            .trim()
            .split("\n")
          assert.deepStrictEqual(more, [])
          const run = Effect.fnUntraced(function* (command: string) {
            const child = yield* startChild(["bash", "-c", command], { cwd: service.folder })
            assert.strictEqual(yield* child.exited(), 0, child.output())
            return child.stdout()
          }, Effect.scoped)

          const printed = yield* run(createKey)
          assert.match(printed, /^mst_[A-Za-z0-9]{49}\n$/)
          const key = printed.trim()
          yield* expectStatus(service, 200, "GET", "/api/nodes", { key })
          const [id = "", scope, state] = cells(yield* run(listKeys)).find((row) => row[3] === "ci") ?? []
          assert.strictEqual(scope, "AppAdmin")
          assert.match(`${id} ${state}`, /^key_\w+ valid until 20/)
          yield* run(revokeKey.replace("<id>", id))
          yield* expectStatus(service, 401, "GET", "/api/nodes", { key })
        }),
      60_000
    )
  })

  describe("Blueprints and software", () => {
    it.effect(
      "the printed minimal pair loads and runs",
      () =>
        Effect.gen(function* () {
          const service = yield* Tour
          const [software = "", blueprint = "", ...more] = minimalPair
          assert.deepStrictEqual(more, [])
          yield* writeFiles(service.folder, {
            "software/echo.yml": software,
            "blueprints/echo.yml": blueprint
          })
          yield* expectStatus(service, 200, "POST", "/api/software/reload")
          yield* expectStatus(service, 200, "POST", "/api/blueprints/reload")
          const id = yield* running(service, "echo")
          assert.strictEqual((yield* commands(service, id, "anyone there?")).status, 204)
          yield* logsHave(service, id, "anyone there?")
          yield* powered(service, id, "stop")
          yield* becomes(service, id, "offline")
          yield* expectStatus(service, 200, "DELETE", `/api/servers/${id}`)
          yield* becomes(service, id, "gone")
        }),
      60_000
    )
  })
})

describe("README, Operations: Stopping", () => {
  it.live.each([
    ["SIGTERM to npm", "signal", "SIGTERM"],
    ["SIGINT to npm", "signal", "SIGINT"],
    ["Ctrl-C, which every process of the terminal gets", "signalAll", "SIGINT"]
  ] as const)(
    "%s ends the service and its servers, properly",
    ([, to, signal]) =>
      Effect.gen(function* () {
        const service = yield* npmStart(yield* checkout)
        const kept = yield* running(service, "demo-saved")
        const passing = yield* create(service, "demo", { start: true })
        yield* becomes(service, passing, "running")
        assert.strictEqual(yield* statusOf(service, kept), "running")
        yield* service.npm[to](signal)
        assert.strictEqual(yield* service.npm.exited("30 seconds"), 0, service.npm.output())
        yield* eventually(
          Effect.sync(() => processesBelow(service.folder)),
          (left) => left.length === 0,
          "5 seconds"
        )
        const console = readFileSync(join(service.folder, "data/node/servers", kept, "console.log"), "utf8")
        assert.match(console, /demo: stopping\n$/)
      }),
    90_000
  )
})

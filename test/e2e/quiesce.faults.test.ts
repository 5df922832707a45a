import { readFileSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { until } from "../support/eventually.ts"
import { killableOf } from "../support/killable.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, commands, expectStatus, operationEnd, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const quiesce = { before: ["save-off", "save-all flush"], until: "got save-all", after: ["save-on"] }
const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer }, extra: { quiesce } })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** Makes a backup last for a while: holes are read as zeros. */
const slow = (folder: string) => {
  writeFileSync(join(folder, "files", "holes.bin"), "")
  truncateSync(join(folder, "files", "holes.bin"), 256 * 1024 ** 2)
}

/** The lines that a server has got. */
const got = (folder: string) =>
  readFileSync(join(folder, "console.log"), "utf8")
    .split("\n")
    .flatMap((line) => (line.startsWith("got ") ? [line.slice("got ".length).trim()] : []))

const isHeld = (folder: string) => "quiesced" in JSON.parse(readFileSync(join(folder, "server.json"), "utf8"))

type Api = Pick<Service, "request">

const begin = (api: Api, server: string, mode: string) =>
  Effect.map(
    expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, { body: { quiesce: mode } }),
    ({ json }): string => json.id
  )

const ended = Effect.fnUntraced(function* (api: Api, operation: string) {
  const end = yield* operationEnd(api, operation, "120 seconds")
  assert.strictEqual(end.state, "done", end.reason)
  const [backup] = (yield* expectStatus(api, 200, "GET", "/api/backups")).json
  return backup
})

const answers = Effect.fnUntraced(function* (api: Api, server: string, folder: string, word: string) {
  yield* becomes(api, server, "running")
  assert.strictEqual((yield* commands(api, server, word)).status, 204)
  yield* until("the server reads its console", () => got(folder).includes(word))
  assert.isFalse(isHeld(folder))
})

const outcomes = { auto: "quiesced", pause: "paused", stop: "stopped" } as const

describe("spec 12.10: service and daemon are killed", () => {
  for (const [mode, consistency] of Object.entries(outcomes))
    it.live(
      `${mode}: the backup is made by the next service, and the server runs on`,
      () =>
        Effect.gen(function* () {
          const scene = yield* killableOf(files)
          const first = yield* scene.start
          const server = yield* running(first, "kept")
          const folder = join(scene.dataDir, "node", "servers", server)
          slow(folder)
          const operation = yield* begin(first, server, mode)
          yield* until("the server is held still", () => isHeld(folder))
          yield* first.kill
          const second = yield* scene.start
          yield* until("the server is held still again", () => isHeld(folder))
          yield* second.kill
          const third = yield* scene.start
          assert.strictEqual((yield* ended(third, operation)).consistency, consistency)
          yield* answers(third, server, folder, "hello")
          if (mode === "auto") assert.strictEqual(got(folder).at(-2), "save-on")
        }).pipe(Effect.scoped),
      240_000
    )
})

describe("spec 12.10: the service alone is killed", () => {
  it.live(
    "the daemon releases the server without it, and the next service has the backup",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const port = yield* freePort
        const dataDir = join(yield* temporaryFolder, "data")
        const settings = { dataDir, env: { ...alone, ...env, MUSTER_PORT: String(port) } }
        const first = yield* startService(settings)
        const { key } = yield* nodeKey(first)
        const node = yield* startNode({
          control: first.url,
          key,
          id: "n1",
          env: { MUSTER_NODE_ALLOCATIONS: "127.0.0.1:32500-32599" }
        })
        yield* nodeIs(first, "n1", true)
        const server = yield* running(first, "kept")
        const folder = join(node.dataDir, "node", "servers", server)
        slow(folder)
        let api = first
        for (const mode of ["auto", "pause", "stop"] as const) {
          const operation = yield* begin(api, server, mode)
          yield* until("the server is held still", () => isHeld(folder))
          yield* api.kill("SIGKILL")
          yield* until("nothing holds the server", () => !isHeld(folder))
          if (mode === "auto") yield* until("the last line is there", () => got(folder).at(-1) === "save-on")
          api = yield* startService(settings)
          assert.strictEqual((yield* ended(api, operation)).consistency, outcomes[mode])
          yield* answers(api, server, folder, `hello-${mode}`)
        }
      }).pipe(Effect.scoped),
    300_000
  )
})

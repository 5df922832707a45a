import { randomBytes } from "node:crypto"
import { mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { killableOf } from "../support/killable.ts"
import { nodeIs, startNode } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import type { Service } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"

/** Needs some seconds until it is online. */
const slowServer = `sleep 4
echo ready
while read -r line; do [ "$line" = stop ] && exit 0; done`

const games = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": slowServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

type Api = Pick<Service, "request" | "key">

const waiting = (api: Api) => ({ authorization: `Bearer ${api.key}`, prefer: "wait=60" })

const backedUp = Effect.fnUntraced(function* (api: Api, server: string) {
  const path = `/api/servers/${server}/backups`
  const { json } = yield* expectStatus(api, 202, "POST", path, { body: {}, headers: waiting(api) })
  assert.strictEqual(json.state, "done", json.reason)
  const [backup] = (yield* expectStatus(api, 200, "GET", path)).json
  return String(backup.id)
})

const operationOf = (api: Api, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/operations/${id}`), ({ json }) => json)

const hasEnded = ({ state }: { readonly state: string }) => state !== "queued" && state !== "running"

/** Waits until the server of a drill has a status, or the drill is over. */
const hasStatus = (
  api: Api,
  { id, server_id }: { readonly id: string; readonly server_id: string },
  wanted: string
) =>
  eventually(
    Effect.gen(function* () {
      const shown = yield* api.request("GET", `/api/servers/${server_id}?include=status`)
      return { status: shown.json?.status, isOver: hasEnded(yield* operationOf(api, id)) }
    }),
    ({ isOver, status }) => isOver || status === wanted,
    "60 seconds"
  )

const idsOf = (api: Api) =>
  Effect.map(
    expectStatus(api, 200, "GET", "/api/servers"),
    ({ json }): ReadonlyArray<string> => json.map(({ id }: { readonly id: string }) => id)
  )

/** Waits for the end of a drill, which must have succeeded, and until its server is gone. */
const succeeded = Effect.fnUntraced(function* (api: Api, operation: string, backup: string, rest: string) {
  const end = yield* eventually(operationOf(api, operation), (now) => hasEnded(now), "120 seconds")
  assert.strictEqual(end.state, "done", end.reason)
  yield* eventually(idsOf(api), (ids) => ids.join() === rest, "60 seconds")
  const { json } = yield* expectStatus(api, 200, "GET", `/api/backups/${backup}`)
  assert.strictEqual(json.drill.ok, true, json.drill.reason)
  return json.drill.at
})

describe("spec 12.11: a drill whose service and daemon are killed", () => {
  it.live(
    "continues with the same server, succeeds, and leaves no server and no files, whenever it is killed",
    () =>
      Effect.gen(function* () {
        const scene = yield* killableOf(games)
        let service = yield* scene.start
        const server = yield* installed(service, "kept")
        const servers = join(scene.dataDir, "node", "servers")
        const world = join(servers, server, "files", "world")
        mkdirSync(world)
        for (let n = 0; n < 20; n++) writeFileSync(join(world, `${n}`), randomBytes(2_000_000))
        const backup = yield* backedUp(service, server)
        const drills: Array<string> = []
        for (const status of ["installing", "offline", "starting"]) {
          const path = `/api/backups/${backup}/drill`
          const { json: begun } = yield* expectStatus(service, 202, "POST", path, { body: {} })
          drills.push(begun.id)
          const reached = yield* hasStatus(service, begun, status)
          assert.isFalse(reached.isOver, status)
          yield* service.kill
          service = yield* scene.start
          yield* succeeded(service, begun.id, backup, server)
          yield* eventually(
            Effect.sync(() => readdirSync(servers)),
            (names) => names.filter((name) => !name.startsWith(".")).join() === server
          )
        }
        const all = (yield* expectStatus(service, 200, "GET", "/api/operations?kind=backup.drill")).json
        assert.deepStrictEqual(
          all.map(({ id }: { readonly id: string }) => id),
          drills.toReversed()
        )
      }).pipe(Effect.scoped),
    400_000
  )
})

describe("spec 12.11: a drill on another node", () => {
  it.live(
    "survives its killed leader and its killed daemon, and a cancelled one leaves nothing",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const set = yield* replicaSet(env)
        const [leader, other] = [yield* set.start(), yield* set.start()]
        const [one, two] = [yield* set.key("n1", "Node"), yield* set.key("n2", "Node")]
        const from = yield* startNode({ control: other.url, key: one.key, id: "n1" })
        const scope = yield* Effect.scope
        const to = { control: other.url, key: two.key, id: "n2" }
        const own = yield* Scope.fork(scope)
        const second = yield* Scope.provide(
          startNode({ ...to, dataDir: join(from.dataDir, "..", "n2") }),
          own
        )
        for (const id of ["n1", "n2"]) for (const api of [leader, other]) yield* nodeIs(api, id, true)
        const server = yield* installed(other, "kept", { node_id: "n1" })
        for (let n = 0; n < 3; n++) {
          const raw = randomBytes(8 * 1024 * 1024).toString("base64")
          const path = `/api/servers/${server}/files/content?path=/noise${n}`
          yield* expectStatus(other, 201, "PUT", path, { raw })
        }
        const backup = yield* backedUp(other, server)
        const drill = Effect.map(
          expectStatus(other, 202, "POST", `/api/backups/${backup}/drill`, { body: { node_id: "n2" } }),
          ({ json }): { readonly id: string; readonly server_id: string } => json
        )
        const first = yield* drill
        yield* hasStatus(other, first, "offline")
        yield* leader.kill("SIGKILL")
        yield* hasStatus(other, first, "starting")
        yield* second.kill("SIGKILL")
        yield* Scope.close(own, Exit.void)
        const again = yield* startNode({ ...to, dataDir: second.dataDir })
        yield* succeeded(other, first.id, backup, server)
        const left = Effect.sync(() => readdirSync(join(again.dataDir, "node", "servers")))
        const isEmpty = (names: ReadonlyArray<string>) => names.every((name) => name.startsWith("."))
        yield* eventually(left, isEmpty)
        const cancelled = yield* drill
        yield* hasStatus(other, cancelled, "starting")
        yield* expectStatus(other, 202, "DELETE", `/api/operations/${cancelled.id}`)
        yield* eventually(idsOf(other), (ids) => ids.join() === server, "60 seconds")
        yield* eventually(left, isEmpty)
        assert.strictEqual((yield* operationOf(other, cancelled.id)).state, "cancelled")
        assert.include(
          readdirSync(join(from.dataDir, "node", "servers")).filter((name) => !name.startsWith(".")),
          server
        )
      }).pipe(Effect.scoped),
    400_000
  )
})

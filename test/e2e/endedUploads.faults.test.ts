/** Unfinished uploads of servers whose files leave or change as a whole (spec 10.8). */
import { globSync } from "node:fs"
import { basename, join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { assertError } from "../controlPlane/http/support/http.ts"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import {
  locationOf,
  makeLarge,
  offsetOf,
  sendRest,
  temporaryFiles,
  uploadsOf,
  version
} from "../controlPlane/http/support/tus.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { drain, files, node, serverOf } from "../support/moves.ts"
import { alone, connectedNode, nodeKey } from "../support/nodes.ts"
import type { Service } from "../support/Service.ts"
import { becomes, expectStatus, installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const MIB = 2 ** 20

const service = Muster.layer(files, alone)
const options = { excludeTestServices: true, timeout: "90 seconds" } as const

/** The actions on a server that end its uploads. */
const actions: Readonly<
  Record<string, (api: Service, id: string) => Effect.Effect<unknown, { readonly message: string }>>
> = {
  reset: (api, id) => expectStatus(api, 202, "POST", `/api/servers/${id}/reset`),
  reinstallation: (api, id) => expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`),
  deletion: (api, id) => expectStatus(api, 200, "DELETE", `/api/servers/${id}`),
  migration: (api) => drain(api, "migration-a")
}

/** What uploads have on a node. An overlay shows the file below it, too. */
const leftOn = ({ dataDir }: { readonly dataDir: string }) => ({
  temporary: new Set(
    temporaryFiles(dataDir)
      .map((path) => basename(path))
      .filter((name) => name.endsWith(".tmp"))
  ).size,
  records: globSync(join(dataDir, "**/uploads/*")).length
})

layer(service, options)("unfinished uploads", (it) => {
  describe("spec 10.8: an upload ends without a file", () => {
    it.effect.each(Object.entries(actions))("%s: also while bytes arrive", ([name, act]) =>
      Effect.gen(function* () {
        const api = yield* Muster
        const source = yield* node(api, `${name}-a`, 27920)
        const id = yield* installed(api, "kept")
        const target = name === "migration" ? [yield* node(api, `${name}-b`, 27930)] : []
        const { create, head } = uploadsOf(api, id)
        const file = makeLarge(16)
        const idle = locationOf(yield* create({ path: "/idle.bin" }, 10, {}, "12345"))
        const upload = locationOf(yield* create({ path: "/new/sent.bin" }, file.size))
        const sending = yield* sendRest(
          api,
          upload,
          { file, offset: 0 },
          { after: 4 * MIB, act: () => {} }
        ).pipe(Effect.forkChild)
        yield* eventually(offsetOf(api, upload), (offset) => offset >= 4 * MIB)
        yield* act(api, id)
        const { status, text } = yield* Fiber.join(sending)
        assert.oneOf(status, [404, 409], text)
        assert.isNotEmpty(JSON.parse(text).detail)
        if (name === "reset" || name === "reinstallation") yield* becomes(api, id, "offline")
        if (name === "migration") {
          yield* eventually(
            serverOf(api, id),
            ({ migration, node_id }) => node_id === `${name}-b` && migration === undefined
          )
        }
        for (const path of [upload, idle]) {
          yield* eventually(head(path), (answer) => answer.status === 404)
          assertError(yield* api.request("GET", path, { headers: version }), 404)
        }
        if (name !== "deletion")
          assert.notMatch(
            (yield* expectStatus(api, 200, "GET", `/api/servers/${id}/files`)).text,
            /idle|sent|new/
          )
        for (const of of [source, ...target]) assert.deepStrictEqual(leftOn(of), { temporary: 0, records: 0 })
      }).pipe(Effect.scoped)
    )

    it.effect("a revoked and an expired key: also on a node that is away, once it is back", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const dataDir = join(yield* temporaryFolder, "keys-a")
        const { key } = yield* nodeKey(api, "keys-a")
        const env = { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:27940-27949" }
        const startDaemon = connectedNode(api, "keys-a", { dataDir, key, env })
        const daemon = yield* startDaemon
        const id = yield* installed(api, "kept")
        const file = makeLarge(16)
        const [revoked, expired] = [
          yield* keyed("Operator", { allow: ["files"] }),
          yield* keyed("Operator", { allow: ["files"], expires_in: 5 })
        ]
        const [upload, other, own] = [
          yield* uploadsOf(revoked, id).create({ path: "/revoked" }, file.size),
          yield* uploadsOf(expired, id).create({ path: "/expired" }, 10, {}, "12345"),
          yield* uploadsOf(api, id).create({ path: "/own" }, 10, {}, "12345")
        ]
        for (const made of [upload, other, own]) assert.strictEqual(made.status, 201, made.text)
        const stop = { after: 4 * MIB, act: () => {} }
        const sending = yield* sendRest(revoked, locationOf(upload), { file, offset: 0 }, stop).pipe(
          Effect.forkChild
        )
        yield* eventually(offsetOf(revoked, locationOf(upload)), (offset) => offset >= 4 * MIB)
        yield* expectStatus(api, 200, "DELETE", `/api/keys/${revoked.id}`)
        assert.strictEqual((yield* Fiber.join(sending)).status, 401)
        yield* daemon.kill("SIGKILL")
        yield* startDaemon
        yield* eventually(
          () => leftOn(daemon),
          ({ records, temporary }) => records === 1 && temporary === 1
        )
        assert.strictEqual((yield* uploadsOf(api, id).patch(locationOf(own), 5, "67890")).status, 204)
      }).pipe(Effect.scoped)
    )
  })
})

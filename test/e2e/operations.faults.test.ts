import { readdirSync, writeFileSync } from "node:fs"
import { request } from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { storeOperation } from "../support/database.ts"
import { eventually } from "../support/eventually.ts"
import { killable } from "../support/killable.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { archive, member } from "../support/tar.ts"

const FOLDERS = 4_000

interface Progressed {
  readonly progress?: { readonly done: number }
}

describe("spec 11.4: an operation whose service and daemon are killed", () => {
  it.live("continues after each kill, and makes every change", () =>
    Effect.gen(function* () {
      const { dataDir, start } = yield* killable
      const first = yield* start
      const server = yield* installed(first, "kept")
      yield* first.kill
      const changes = Array.from({ length: FOLDERS }, (_, n) => ({ kind: "folder", path: `/made/f${n}` }))
      const request = JSON.stringify({ kind: "change", changes })
      const operation = yield* storeOperation({ dataDir }, server, { request, created_by: "cli" })
      const path = `/api/operations/${operation}`
      const read = (api: Parameters<typeof expectStatus>[0]) =>
        Effect.map(expectStatus(api, 200, "GET", path), ({ json }) => json)
      let reached = 0
      for (let round = 0; round < 2; round++) {
        const killed = yield* start
        const { progress, state } = yield* eventually(
          read(killed),
          ({ progress, state }) => state === "running" && (progress?.done ?? 0) > reached
        )
        assert.strictEqual(state, "running")
        reached = progress.done
        yield* killed.kill
      }
      const last = yield* start
      const end = yield* eventually(read(last), ({ state }) => state !== "running")
      assert.deepInclude(end, { state: "done", progress: { done: FOLDERS, total: FOLDERS, unit: "files" } })
      const folder = join(dataDir, "node", "servers", server, "files", "made")
      assert.strictEqual(readdirSync(folder).length, FOLDERS)
    }).pipe(Effect.scoped)
  )

  it.live("leaves nothing of an archive that was arriving, and unpacks one that lies on the server", () =>
    Effect.gen(function* () {
      const { dataDir, start } = yield* killable
      const first = yield* start
      const server = yield* installed(first, "kept")
      const folder = join(dataDir, "node", "servers", server, "files")
      const members = Array.from({ length: FOLDERS }, (_, n) => member({ name: `./f${n}`, content: "x" }))
      const bytes = archive(...members)
      writeFileSync(join(folder, "all.tar"), bytes)
      const { json: unpacking } = yield* expectStatus(
        first,
        202,
        "POST",
        `/api/servers/${server}/files/unpack`,
        { body: { path: "/all.tar", to: "/unpacked" } }
      )
      const sent = request(`${first.url}/api/servers/${server}/files/archive?path=/sent`, {
        method: "PUT",
        headers: { authorization: `Bearer ${first.key}`, "content-length": String(bytes.length) }
      })
      sent.on("error", () => {})
      sent.write(bytes.subarray(0, 1_000_000))
      const all = (api: Parameters<typeof expectStatus>[0]) =>
        Effect.map(expectStatus(api, 200, "GET", "/api/operations"), ({ json }) => json)
      const isOf = (id: string) => (one: { readonly id: string }) => one.id === id
      yield* eventually(
        all(first),
        (found) => found.length === 2 && found.every(({ progress }: Progressed) => (progress?.done ?? 0) > 0)
      )
      yield* first.kill
      const last = yield* start
      const ends = yield* eventually(all(last), (found) =>
        found.every(({ state }: { readonly state: string }) => !["queued", "running"].includes(state))
      )
      assert.deepInclude(ends.find(isOf(unpacking.id)), { state: "done" })
      const arriving = ends.find(({ id }: { readonly id: string }) => id !== unpacking.id)
      assert.deepInclude(arriving, { state: "failed" })
      assert.match(arriving.reason, /restarted while the archive arrived|no byte of the archive/)
      assert.strictEqual(readdirSync(join(folder, "unpacked")).length, FOLDERS)
      assert.deepStrictEqual(
        readdirSync(folder).filter((name) => name.startsWith(".muster") || name === "sent"),
        []
      )
    }).pipe(Effect.scoped)
  )
})

import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { idOfBase } from "../../../src/daemon/backups/target.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { startService } from "../../support/Service.ts"
import { s3, startS3Server } from "../../support/s3Server.ts"
import { expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { Far, scene } from "./support/files.ts"
import { assertError, noNode, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const secret = "a-secret-access-key-that-nothing-shows"
const bucket = {
  type: "s3",
  endpoint: "http://s3.invalid",
  region: "eu-west-1",
  bucket: "backups",
  access_key_id: "AKIAONE",
  secret_access_key: secret
}

/** The names of files below a folder that contain a text. */
const filesWith = (folder: string, text: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => {
    const stats = statSync(join(folder, name), { throwIfNoEntry: false })
    return stats?.isFile() === true && readFileSync(join(folder, name)).includes(text)
  })

const allowed = mkdtempSync(join(tmpdir(), "muster-backups-"))
afterAll(() => rmSync(allowed, { recursive: true }))
const env = { MUSTER_BACKUP_ALLOW_PRIVATE: "true", MUSTER_NODE_BACKUP_FOLDERS: `${allowed}/` }

layer(Layer.provideMerge(Far.layer, service(env)), options)("targets of backups", (it) => {
  describe("spec 12.6: the routes", () => {
    it.effect("a target is defined, changed and deleted; nothing shows its secret", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const list = "/api/backup-targets"
        const made = yield* expectStatus(api, 201, "POST", list, { body: { id: "a", ...bucket } })
        const { secret_access_key: _, ...shown } = bucket
        assert.deepInclude(made.json, { id: "a", source: "api", ...shown })
        assertError(
          yield* api.request("POST", list, { body: { id: "a", ...bucket } }),
          409,
          "target exists: a"
        )
        const changed = yield* expectStatus(api, 200, "PATCH", `${list}/a`, {
          body: { prefix: "muster", path_style: true, secret_access_key: `${secret}-2` }
        })
        assert.deepInclude(changed.json, { prefix: "muster", path_style: true })
        const all = yield* expectStatus(api, 200, "GET", list)
        assert.deepStrictEqual(
          all.json.map(({ id }: { readonly id: string }) => id),
          ["node", "a"]
        )
        const tested = yield* expectStatus(api, 200, "POST", `${list}/a/test`, { body: {} })
        assert.deepInclude(tested.json, { ok: false, step: "write" })
        const audit = yield* expectStatus(api, 200, "GET", "/api/audit?limit=10")
        const [test] = audit.json
        assert.deepInclude(test, { action: "target.test", object: { kind: "target", id: "a" } })
        for (const { text } of [made, changed, all, tested, audit]) assert.notInclude(text, secret)
        assert.notInclude(api.output(), secret)
        assert.deepStrictEqual(filesWith(api.dataDir, secret), [])
        yield* expectStatus(api, 204, "DELETE", `${list}/a`)
        assertError(yield* api.request("GET", `${list}/a`), 404, "target not found: a")
      })
    )

    it.effect("the target node is of the service: it is tested, never changed", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const nodes = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
        for (const { id } of nodes) {
          const path = "/api/backup-targets/node/test"
          const tested = yield* expectStatus(api, 200, "POST", path, { body: { node_id: id } })
          assert.deepStrictEqual(tested.json, { node_id: id, ok: true })
        }
        assertError(yield* api.request("DELETE", "/api/backup-targets/node"), 409)
        assertError(
          yield* api.request("POST", "/api/backup-targets", { body: { ...bucket, id: "node" } }),
          409
        )
        const path = "/api/backup-targets/node/test"
        assertError(yield* api.request("POST", path, { body: { node_id: "none" } }), 404)
      })
    )

    it.effect("a folder of the nodes is defined, changed, tested and used; it has no secret", () =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene("embedded")
        const list = "/api/backup-targets"
        const folder = join(allowed, "nas")
        const made = yield* expectStatus(api, 201, "POST", list, {
          body: { id: "nas", type: "node", folder }
        })
        assert.deepInclude(made.json, { id: "nas", type: "node", folder, source: "api" })
        const before = yield* expectStatus(api, 200, "PATCH", `${list}/nas`, { body: { folder: "/srv/no" } })
        assert.deepInclude(before.json, { folder: "/srv/no" })
        const nodes = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
        const node_id = nodes.find(({ name }: { readonly name: string }) => name !== "far").id
        const test = expectStatus(api, 200, "POST", `${list}/nas/test`, { body: { node_id } })
        assert.deepInclude((yield* test).json, { ok: false, step: "write" })
        assert.include(
          (yield* test).json.reason,
          "MUSTER_NODE_BACKUP_FOLDERS of the node does not allow /srv/no"
        )
        yield* expectStatus(api, 200, "PATCH", `${list}/nas`, { body: { folder } })
        assert.deepInclude((yield* test).json, { ok: true })
        const bucketField = yield* api.request("PATCH", `${list}/nas`, { body: { bucket: "backups" } })
        assertError(bucketField, 422, "body field bucket: the target nas is a folder of nodes")
        yield* files.put("/a.txt", "a")
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const path = `/api/servers/${server}/backups`
        const { json } = yield* expectStatus(api, 202, "POST", path, { body: { target: "nas" }, headers })
        assert.strictEqual(json.state, "done", JSON.stringify(json))
        const [backup] = (yield* expectStatus(api, 200, "GET", path)).json
        // The base that the backup lies over stays for others (12.12).
        const stored = () => readdirSync(folder).filter((name) => idOfBase(name) === undefined)
        assert.deepInclude(backup, { target: "nas", state: "done", node_id })
        assert.deepStrictEqual(stored(), [backup.id])
        // Overlays need root, and then the folder has the base, too.
        const isRoot = process.getuid?.() === 0
        assert.strictEqual(backup.kind, isRoot ? "written" : "full")
        assert.lengthOf(readdirSync(folder), isRoot ? 2 : 1)
        // A server of another node gets it through the control plane.
        const other = yield* scene("remote")
        const restored = yield* expectStatus(api, 202, "POST", `/api/servers/${other.id}/restore`, {
          body: { backup_id: backup.id, safety: false },
          headers
        })
        assert.strictEqual(restored.json.state, "done", JSON.stringify(restored.json))
        assert.strictEqual((yield* other.files.get("/a.txt")).text, "a")
        yield* expectStatus(api, 204, "DELETE", `/api/backups/${backup.id}`)
        assert.deepStrictEqual(stored(), [])
        yield* expectStatus(api, 204, "DELETE", `${list}/nas`)
      })
    )

    it.effect("a folder is an absolute path without `..`; a bucket has no folder", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const list = "/api/backup-targets"
        for (const folder of [
          "backups",
          "/",
          "/a/../b",
          "/a//b",
          "/a/",
          "/a/.",
          "/a\nb",
          `/${"a".repeat(1001)}`,
          ""
        ])
          assertError(
            yield* api.request("POST", list, { body: { id: "f", type: "node", folder } }),
            422,
            /^body field folder: /
          )
        assertError(yield* api.request("POST", list, { body: { id: "f", type: "node" } }), 422, /folder/)
        yield* expectStatus(api, 201, "POST", list, { body: { id: "b", ...bucket } })
        assertError(
          yield* api.request("PATCH", `${list}/b`, { body: { folder: "/a" } }),
          422,
          "body field folder: the target b is a bucket"
        )
        yield* expectStatus(api, 204, "DELETE", `${list}/b`)
      })
    )

    it.effect("a backup into a target that is not defined is 422; other scopes see no target", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        const answer = yield* api.request("POST", `/api/servers/${id}/backups`, {
          body: { target: "none" }
        })
        assertError(answer, 422, "body field target: target not found: none")
        const operator = yield* keyed("Operator", { allow: ["restore"] })
        assertError(yield* operator.request("GET", "/api/backup-targets"), 403)
      })
    )

    it.effect.skipIf(!s3.run)(`a backup in a bucket is made, read and deleted${s3.note}`, () =>
      Effect.gen(function* () {
        const { access, keys } = yield* startS3Server
        const { allow_private: _, ...body } = access
        const { api, files, id: server } = yield* scene("embedded")
        yield* expectStatus(api, 201, "POST", "/api/backup-targets", { body: { id: "offsite", ...body } })
        yield* files.put("/a.txt", "a")
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const path = `/api/servers/${server}/backups`
        const { json } = yield* expectStatus(api, 202, "POST", path, {
          body: { target: "offsite", kind: "full" },
          headers
        })
        assert.strictEqual(json.state, "done", JSON.stringify(json))
        const [backup] = (yield* expectStatus(api, 200, "GET", path)).json
        assert.deepInclude(backup, { target: "offsite", state: "done" })
        assert.isAbove((yield* keys).length, 0)
        assertError(
          yield* api.request("DELETE", "/api/backup-targets/offsite"),
          409,
          "the target offsite has 1 backup"
        )
        const archive = yield* expectStatus(api, 200, "GET", `/api/backups/${backup.id}/archive`)
        assert.strictEqual(archive.headers.get("content-length"), String(backup.stored_bytes))
        assert.notInclude(api.output(), access.secret_access_key)
        assert.deepStrictEqual(filesWith(api.dataDir, access.secret_access_key), [])
        yield* expectStatus(api, 204, "DELETE", `/api/backups/${backup.id}`)
        assert.deepStrictEqual(yield* keys, [])
        yield* expectStatus(api, 204, "DELETE", "/api/backup-targets/offsite")
      })
    )
  })
})

describe("spec 12.6: addresses and the file of targets", () => {
  it.effect("private addresses need the setting; the file defines targets, and SIGHUP reads it again", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = join(folder, "targets.yml")
      const write = (...ids: ReadonlyArray<string>) => {
        const { secret_access_key: _, ...fields } = bucket
        const targets = ids.map((id) => ({ id, ...fields, secret_access_key_env: "S3_SECRET" }))
        const nas = { id: "nas", type: "node", folder: "/mnt/backups" }
        writeFileSync(file, JSON.stringify({ targets: [...targets, nas] }))
      }
      write("one")
      const api = yield* startService({ env: { ...noNode, MUSTER_BACKUP_TARGETS: file, S3_SECRET: secret } })
      const list = Effect.map(expectStatus(api, 200, "GET", "/api/backup-targets"), ({ json }) =>
        json.map(({ id, source }: { readonly id: string; readonly source: string }) => `${id} ${source}`)
      )
      assert.deepStrictEqual(yield* list, ["node service", "nas file", "one file"])
      const defined = /the file of MUSTER_BACKUP_TARGETS defines the target one/
      assertError(yield* api.request("DELETE", "/api/backup-targets/one"), 409, defined)
      for (const endpoint of ["http://127.0.0.1:9000", "https://[::1]", "http://169.254.169.254"]) {
        const body = { ...bucket, id: "two", endpoint }
        assertError(
          yield* api.request("POST", "/api/backup-targets", { body }),
          422,
          /^body field endpoint: .* only MUSTER_BACKUP_ALLOW_PRIVATE=true allows$/
        )
      }
      for (const endpoint of ["ftp://a.example", "https://u:p@a.example", "https://a.example/x?y"])
        assertError(
          yield* api.request("POST", "/api/backup-targets", { body: { ...bucket, id: "two", endpoint } }),
          422
        )
      write("one", "two")
      yield* Effect.sync(() => api.process.kill("SIGHUP"))
      yield* eventually(list, (found) => found.includes("two file"))
      writeFileSync(file, "targets: [{ id: bad }]")
      yield* Effect.sync(() => api.process.kill("SIGHUP"))
      yield* eventually(
        () => api.output(),
        (output) => output.includes("targets of backups not reloaded")
      )
      assert.notInclude(api.output(), secret)
    }).pipe(Effect.scoped)
  )
})

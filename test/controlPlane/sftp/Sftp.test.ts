import { existsSync, linkSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { call, connect, keyWith, openSftp, sftpOf, sftpService } from "./support/sftp.ts"

const folderOf = (dataDir: string, id: string) => join(dataDir, "node", "servers", id, "files")

layer(sftpService(), { excludeTestServices: true, timeout: "60 seconds" })("SFTP", (it) => {
  describe("spec 10.6: logins", () => {
    it.effect("the secret is an API key, the user name an id, the beginning of one, or a name", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept", { name: "lobby" })
        for (const name of [id, id.slice(0, 6), "lobby"]) {
          const sftp = yield* openSftp(muster, name, muster.key)
          const names = yield* call<ReadonlyArray<{ filename: string }>>((done) => sftp.readdir("/", done))
          assert.deepStrictEqual(
            names.map(({ filename }) => filename),
            ["server.sh"]
          )
        }
        const { key } = yield* keyWith(muster, { allow: ["power"] })
        for (const [name, secret] of [
          [id, "wrong"],
          ["nothing", muster.key],
          [id, key]
        ] as const) {
          assert.match(yield* Effect.flip(connect(muster, name, secret)), /authentication methods failed/)
        }
      }).pipe(Effect.scoped)
    )

    it.effect("`all` has a folder for each server that the key may browse, by id", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        yield* installed(muster, "kept")
        const { key } = yield* keyWith(muster, { allow: ["files"], servers: [id] })
        const sftp = yield* openSftp(muster, "all", key)
        const names = yield* call<ReadonlyArray<{ filename: string }>>((done) => sftp.readdir("/", done))
        assert.deepStrictEqual(
          names.map(({ filename }) => filename),
          [id]
        )
        yield* call((done) => sftp.writeFile(`/${id}/a.txt`, "a", done))
        assert.strictEqual(readFileSync(join(folderOf(muster.dataDir, id), "a.txt"), "utf8"), "a")
        assert.match(yield* Effect.flip(call((done) => sftp.mkdir("/other", done))), /^2 /)
      }).pipe(Effect.scoped)
    )

    it.effect("a host key stays, and there is nothing but the subsystem sftp", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const client = yield* connect(muster, id, muster.key)
        assert.match(sftpOf(muster).fingerprint, /^SHA256:[\w+/]{43}$/)
        assert.match(yield* Effect.flip(call((done) => client.exec("id", done))), /Unable to exec/)
        assert.match(yield* Effect.flip(call((done) => client.shell(done))), /Unable to start|Unable to/)
        assert.match(
          yield* Effect.flip(call((done) => client.forwardOut("127.0.0.1", 1, "127.0.0.1", 22, done))),
          /Channel open failure/
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a revoked key, and the deletion of the server, end the session within a second", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        for (const end of ["key", "server"]) {
          const id = yield* installed(muster, "kept")
          const { id: key_id, key } = yield* keyWith(muster, { allow: ["files"] })
          const client = yield* connect(muster, id, key)
          let isClosed = false
          client.on("close", () => {
            isClosed = true
          })
          yield* expectStatus(
            muster,
            200,
            "DELETE",
            end === "key" ? `/api/keys/${key_id}` : `/api/servers/${id}`
          )
          yield* eventually(
            () => isClosed,
            (closed) => closed
          )
        }
      }).pipe(Effect.scoped)
    )
  })

  describe("spec 10.6: files", () => {
    it.effect("files and folders are written, renamed and removed as POSIX has it, and audited", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const folder = folderOf(muster.dataDir, id)
        const sftp = yield* openSftp(muster, id, muster.key)
        yield* call((done) => sftp.mkdir("/d", done))
        assert.match(yield* Effect.flip(call((done) => sftp.mkdir("/d", done))), /^4 .*exists/)
        yield* call((done) => sftp.writeFile("/d/a.txt", "hello", { mode: 0o640 }, done))
        assert.strictEqual(statSync(join(folder, "d/a.txt")).mode & 0o777, 0o640)
        yield* call((done) => sftp.appendFile("/d/a.txt", " world", done))
        assert.strictEqual(readFileSync(join(folder, "d/a.txt"), "utf8"), "hello world")
        yield* call((done) => sftp.utimes("/d/a.txt", 1_700_000_000, 1_700_000_000, done))
        const stats = yield* call<{ size: number; mtime: number }>((done) => sftp.stat("/d/a.txt", done))
        assert.deepStrictEqual([stats.size, stats.mtime], [11, 1_700_000_000])
        yield* call((done) => sftp.writeFile("/d/b.txt", "b", done))
        assert.match(
          yield* Effect.flip(call((done) => sftp.rename("/d/a.txt", "/d/b.txt", done))),
          /^4 .*exists/
        )
        yield* call((done) => sftp.ext_openssh_rename("/d/a.txt", "/d/b.txt", done))
        assert.strictEqual(readFileSync(join(folder, "d/b.txt"), "utf8"), "hello world")
        assert.match(yield* Effect.flip(call((done) => sftp.rmdir("/d", done))), /^4 .*not empty/)
        assert.match(yield* Effect.flip(call((done) => sftp.unlink("/d", done))), /^4 .*folder/)
        assert.match(yield* Effect.flip(call((done) => sftp.unlink("/d/none", done))), /^2 /)
        yield* call((done) => sftp.unlink("/d/b.txt", done))
        yield* call((done) => sftp.rmdir("/d", done))
        assert.isFalse(existsSync(join(folder, "d")))
        const path = yield* call<string>((done) => sftp.realpath("x/./../../y", done))
        assert.strictEqual(path, "/y")
        const { json } = yield* expectStatus(muster, 200, "GET", `/api/audit?object=${id}&limit=100`)
        const written = json.map(
          ({ action, paths = [] }: { action: string; paths?: ReadonlyArray<string> }) =>
            `${action} ${paths.join(" ")}`
        )
        assert.includeMembers(written, [
          "file.folder /d",
          "file.write /d/a.txt",
          "file.move /d/a.txt /d/b.txt",
          "file.delete /d/b.txt"
        ])
      }).pipe(Effect.scoped)
    )

    it.effect("no link is followed or made, and a file with several names is not written", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const folder = folderOf(muster.dataDir, id)
        const outside = join(muster.dataDir, "outside.txt")
        writeFileSync(outside, "outside")
        symlinkSync(outside, join(folder, "link"))
        writeFileSync(join(folder, "one"), "one")
        linkSync(join(folder, "one"), join(folder, "two"))
        const sftp = yield* openSftp(muster, id, muster.key)
        assert.match(yield* Effect.flip(call((done) => sftp.readFile("/link", done))), /^4 .*link/)
        assert.match(yield* Effect.flip(call((done) => sftp.writeFile("/link", "x", done))), /^4 .*link/)
        assert.match(yield* Effect.flip(call((done) => sftp.symlink("/one", "/made", done))), /^8 /)
        assert.match(yield* Effect.flip(call((done) => sftp.writeFile("/two", "x", done))), /^3 .*names/)
        assert.strictEqual(
          readFileSync(outside, "utf8") + readFileSync(join(folder, "one"), "utf8"),
          "outsideone"
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a key with browse writes nothing, and a key with folders reaches nothing else", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const admin = yield* openSftp(muster, id, muster.key)
        yield* call((done) => admin.mkdir("/plugins", done))
        yield* call((done) => admin.writeFile("/plugins/a.txt", "a", done))
        const browser = yield* openSftp(muster, id, (yield* keyWith(muster, { allow: ["browse"] })).key)
        assert.strictEqual(String(yield* call((done) => browser.readFile("/plugins/a.txt", done))), "a")
        assert.match(yield* Effect.flip(call((done) => browser.writeFile("/b", "b", done))), /^3 .*files/)
        assert.match(yield* Effect.flip(call((done) => browser.unlink("/plugins/a.txt", done))), /^3 /)
        const limited = yield* openSftp(
          muster,
          id,
          (yield* keyWith(muster, { allow: ["files"], paths: ["/plugins"] })).key
        )
        const names = yield* call<ReadonlyArray<{ filename: string }>>((done) => limited.readdir("/", done))
        assert.deepStrictEqual(
          names.map(({ filename }) => filename),
          ["plugins"]
        )
        yield* call((done) => limited.writeFile("/plugins/b.txt", "b", done))
        assert.match(yield* Effect.flip(call((done) => limited.readFile("/server.sh", done))), /^3 /)
        assert.match(
          yield* Effect.flip(call((done) => limited.rename("/plugins/b.txt", "/b.txt", done))),
          /^3 /
        )
      }).pipe(Effect.scoped)
    )
  })
})

import { readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { installed } from "../../support/servers.ts"
import { call, openSftp, sftpService } from "./support/sftp.ts"

layer(sftpService(), { excludeTestServices: true, timeout: "60 seconds" })("extensions of SFTP", (it) => {
  const opened = Effect.gen(function* () {
    const muster = yield* Muster
    const id = yield* installed(muster, "kept")
    const sftp = yield* openSftp(muster, id, muster.key)
    return { sftp, folder: join(muster.dataDir, "node", "servers", id, "files") }
  })

  describe("spec 10.6: extensions", () => {
    it.effect("copy-data copies a part, or all, of one open file to another, and not to itself", () =>
      Effect.gen(function* () {
        const { folder, sftp } = yield* opened
        const bytes = Buffer.from(Array.from({ length: 600_000 }, (_, index) => index % 251))
        yield* call((done) => sftp.writeFile("/a", bytes, done))
        const from = yield* call<Buffer>((done) => sftp.open("/a", "r", done))
        const to = yield* call<Buffer>((done) => sftp.open("/b", "w", done))
        yield* call((done) => sftp.ext_copy_data(from, 0, 0, to, 0, done))
        assert.isTrue(readFileSync(join(folder, "b")).equals(bytes))
        yield* call((done) => sftp.ext_copy_data(from, 100, 50, to, 600_000, done))
        assert.isTrue(readFileSync(join(folder, "b")).subarray(600_000).equals(bytes.subarray(100, 150)))
        assert.match(
          yield* Effect.flip(call((done) => sftp.ext_copy_data(from, 0, 0, from, 0, done))),
          /two files/
        )
        assert.match(
          yield* Effect.flip(call((done) => sftp.ext_copy_data(to, 0, 0, from, 0, done))),
          /^[34] /
        )
      }).pipe(Effect.scoped)
    )

    it.effect("fsync, posix-rename and statvfs act on files of the server", () =>
      Effect.gen(function* () {
        const { folder, sftp } = yield* opened
        const file = yield* call<Buffer>((done) => sftp.open("/a", "w", done))
        yield* call((done) => sftp.write(file, Buffer.from("abc"), 0, 3, 0, done))
        yield* call((done) => sftp.ext_openssh_fsync(file, done))
        yield* call((done) => sftp.close(file, done))
        yield* call((done) => sftp.writeFile("/b", "old", done))
        yield* call((done) => sftp.ext_openssh_rename("/a", "/b", done))
        assert.strictEqual(readFileSync(join(folder, "b"), "utf8"), "abc")
        const space = yield* call<Record<string, number>>((done) => sftp.ext_openssh_statvfs("/", done))
        assert.strictEqual(space.f_bsize, 4096)
        assert.isAbove(space.f_blocks ?? 0, 0)
        assert.isAtLeast(space.f_blocks ?? 0, space.f_bavail ?? Number.POSITIVE_INFINITY)
      }).pipe(Effect.scoped)
    )

    it.effect("owners stay, set-id bits are dropped, links are neither made nor read", () =>
      Effect.gen(function* () {
        const { folder, sftp } = yield* opened
        yield* call((done) => sftp.writeFile("/a", "a", done))
        const before = statSync(join(folder, "a"))
        yield* call((done) => sftp.chown("/a", before.uid + 1, before.gid + 1, done))
        yield* call((done) => sftp.chmod("/a", 0o6755, done))
        const { gid, mode, uid } = statSync(join(folder, "a"))
        assert.deepStrictEqual([uid, gid, mode & 0o7777], [before.uid, before.gid, 0o755])
        yield* call((done) => sftp.mkdir("/d", { mode: 0o6777 }, done))
        assert.strictEqual(statSync(join(folder, "d")).mode & 0o6000, 0)
        for (const refused of [
          call((done) => sftp.symlink("/a", "/l", done)),
          call((done) => sftp.readlink("/a", done))
        ])
          assert.match(yield* Effect.flip(refused), /^8 /)
      }).pipe(Effect.scoped)
    )

    it.effect("no path leads out of the files of the server", () =>
      Effect.gen(function* () {
        const { sftp } = yield* opened
        for (const path of ["/../../../etc/passwd", "..//..//etc/passwd", "/./..//../etc/passwd"])
          assert.match(yield* Effect.flip(call((done) => sftp.readFile(path, done))), /^2 /)
        for (const path of ["/a\0b", `/${"x".repeat(300)}`, "/x".repeat(100)])
          assert.match(yield* Effect.flip(call((done) => sftp.mkdir(path, done))), /^4 .*path/)
      }).pipe(Effect.scoped)
    )
  })
})

import { createHash, randomBytes } from "node:crypto"
import { mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { debianProgram } from "../../support/debianPrograms.ts"
import { Muster } from "../../support/Muster.ts"
import { installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { batch, openssh, run } from "./support/programs.ts"
import { sftpOf, sftpService } from "./support/sftp.ts"

const lftp = debianProgram("lftp", "lftp")
const rclone = debianProgram("rclone", "rclone")

const sha256 = (path: string) => createHash("sha256").update(readFileSync(path)).digest("hex")

const makeTree = (folder: string) => {
  for (const name of ["tree/a", "tree/b/c"]) mkdirSync(join(folder, name), { recursive: true })
  writeFileSync(join(folder, "tree/a/one.bin"), randomBytes(300_000))
  writeFileSync(join(folder, "tree/b/c/ä ö.txt"), "two")
}

const assertSameTree = (folder: string, other: string) => {
  for (const name of ["a/one.bin", "b/c/ä ö.txt"])
    assert.strictEqual(sha256(join(other, name)), sha256(join(folder, "tree", name)))
}

const residentBytes = (pid: number | undefined) =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024

layer(sftpService(), { excludeTestServices: true, timeout: "300 seconds" })("programs of SFTP", (it) => {
  describe("spec 10.6", () => {
    it.effect.skipIf(!openssh.run)(
      `OpenSSH's client copies folders and 256 MiB with new keys every 64 MiB, resumes and renames over a file${openssh.note}`,
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const id = yield* installed(muster, "kept")
          const folder = yield* temporaryFolder
          const at = (name: string) => join(folder, name)
          makeTree(folder)
          writeFileSync(at("big"), randomBytes(256 * 1024 * 1024))
          yield* batch(muster, id, folder, [`put -r ${at("tree")}`, `get -r tree ${at("back")}`])
          assertSameTree(folder, at("back"))
          const before = residentBytes(muster.process.pid)
          yield* batch(muster, id, folder, [`put ${at("big")} big`, `get big ${at("big2")}`])
          assert.strictEqual(sha256(at("big2")), sha256(at("big")))
          assert.isBelow(residentBytes(muster.process.pid) - before, 128 * 1024 * 1024)
          const remote = join(muster.dataDir, "node/servers", id, "files/big")
          truncateSync(remote, 100_000_000)
          yield* batch(
            muster,
            id,
            folder,
            [`reput ${at("big")} big`, "put batch other", "rename big other"].map((line) =>
              line.replace("put batch", `put ${at("batch")}`)
            )
          )
          assert.strictEqual(
            sha256(join(muster.dataDir, "node/servers", id, "files/other")),
            sha256(at("big"))
          )
        }).pipe(Effect.scoped)
    )

    it.effect.skipIf(!lftp.run)(`lftp mirrors folders in both directions${lftp.note}`, () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const folder = yield* temporaryFolder
        makeTree(folder)
        const program = "ssh -a -x -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        yield* run(lftp.path, [
          ...["-u", `${id},${muster.key}`, "-e"],
          `set sftp:auto-confirm yes; set net:max-retries 1; set cmd:fail-exit yes; set sftp:connect-program "${program}"; mirror -R ${join(folder, "tree")} tree; mirror tree ${join(folder, "back")}; bye`,
          `sftp://127.0.0.1:${sftpOf(muster).port}`
        ])
        assertSameTree(folder, join(folder, "back"))
      }).pipe(Effect.scoped)
    )

    it.effect.skipIf(!rclone.run)(
      `rclone copies folders with their times, and finds them equal${rclone.note}`,
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const id = yield* installed(muster, "kept")
          const folder = yield* temporaryFolder
          makeTree(folder)
          const env = { RCLONE_CONFIG: join(folder, "rclone.conf") }
          const obscured = (yield* run(rclone.path, ["obscure", muster.key], env)).trim()
          const remote = `:sftp,host=127.0.0.1,port=${sftpOf(muster).port},user=${id},pass=${obscured},shell_type=none:tree`
          yield* run(rclone.path, ["copy", join(folder, "tree"), remote], env)
          yield* run(rclone.path, ["copy", remote, join(folder, "back")], env)
          yield* run(rclone.path, ["check", "--download", join(folder, "tree"), remote], env)
          assertSameTree(folder, join(folder, "back"))
          const times = ["tree", "back"].map((tree) =>
            Math.floor(statSync(join(folder, tree, "a/one.bin")).mtimeMs / 1000)
          )
          assert.strictEqual(times[0], times[1])
        }).pipe(Effect.scoped)
    )
  })
})

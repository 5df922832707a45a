import { readdirSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import ssh2 from "ssh2"
import { sftpOf, sftpService } from "../controlPlane/sftp/support/sftp.ts"
import { debianProgram } from "../support/debianPrograms.ts"
import { Muster } from "../support/Muster.ts"
import { installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { done, onTerminal, refused } from "./support.ts"

const openssh = debianProgram("sftp", "openssh-client")

layer(sftpService(), { excludeTestServices: true, timeout: "60 seconds" })("muster sftp", (it) => {
  describe("spec 10.6: command line", () => {
    it.effect("alone it shows the host key, with a server a password", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept", { name: "hall" })
        const { fingerprint, port } = sftpOf(muster)
        assert.strictEqual(yield* done("sftp", "-o", "id"), fingerprint)
        assert.include(yield* done("sftp"), `127.0.0.1:${port}`)
        const shown = yield* done("sftp", "hall")
        assert.match(shown, /password: +sftp_[\w-]{32}\n/)
        assert.include(shown, `sftp://${id}@127.0.0.1:${port}`)
        assert.match(yield* refused(64, "sftp", "--connect"), /--connect needs a server/)
      })
    )

    it.effect("keys ssh adds, lists and removes SSH keys, and refuses the private part", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const pair = ssh2.utils.generateKeyPairSync("ed25519", { comment: "alice" })
        const file = join(folder, "id")
        writeFileSync(file, pair.private)
        writeFileSync(`${file}.pub`, pair.public)
        yield* done("keys", "create", "--name", "uploads", "--scope", "Operator", "--allow", "files")
        assert.match(yield* refused(64, "keys", "ssh", "add", "uploads", file), /private key.*id\.pub/)
        assert.match(yield* done("keys", "ssh", "add", "uploads", `${file}.pub`), /SHA256:/)
        assert.match(
          yield* done("keys", "ssh", "list", "uploads"),
          /^ID .*\nssh_\w+ +ssh-ed25519 +SHA256:\S+ +alice/
        )
        yield* done("keys", "ssh", "remove", "uploads", "alice")
        assert.strictEqual(yield* done("keys", "ssh", "list", "uploads", "--json"), "[]")
      }).pipe(Effect.scoped)
    )

    it.effect.skipIf(!openssh.run)(
      `--connect runs OpenSSH's client, which checks the host key, and leaves no password behind${openssh.note}`,
      () =>
        Effect.gen(function* () {
          yield* installed(yield* Muster, "kept", { name: "salon" })
          const child = yield* onTerminal("sftp", "--connect", "salon")
          yield* child.prints(/sftp> /)
          yield* child.write("ls -1\n")
          yield* child.prints(/server\.sh/)
          yield* child.write("exit\n")
          assert.strictEqual(yield* child.exited(), 0)
          assert.deepStrictEqual(
            readdirSync(tmpdir()).filter((name) => name.startsWith("muster-sftp-")),
            []
          )
        }).pipe(Effect.scoped)
    )
  })
})

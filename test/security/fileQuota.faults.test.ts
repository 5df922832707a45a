/** The disk limit of a server by every way to write over the network (spec 10.3, 10.6 to 10.8). */
import { spawnSync } from "node:child_process"
import { readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Upload } from "tus-js-client"
import { fileLimit } from "../../src/contract/domain/Limits.ts"
import { filesOf } from "../controlPlane/http/support/files.ts"
import { batch, openssh } from "../controlPlane/sftp/support/programs.ts"
import { sftpService } from "../controlPlane/sftp/support/sftp.ts"
import { Muster } from "../support/Muster.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { archive, member } from "../support/tar.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const LIMIT = 3
const LARGE = 4_000_000

/** Sends contents by tus-js-client, and returns the refusal. */
const refusedByTus = (endpoint: string, key: string, contents: Buffer) =>
  Effect.callback<string>((resume) => {
    const upload = new Upload(contents, {
      endpoint,
      headers: { Authorization: `Bearer ${key}` },
      metadata: { path: "/tus" },
      chunkSize: 1_000_000,
      retryDelays: null,
      onError: ({ message }) => resume(Effect.succeed(message)),
      onSuccess: () => resume(Effect.succeed("it was accepted"))
    })
    upload.start()
  })

/** Each way to write contents of a size. Returns how it was refused. */
const waysOf = Effect.fnUntraced(function* (id: string) {
  const muster = yield* Muster
  const { base, post, put } = filesOf(muster, id)
  const folder = yield* temporaryFolder
  const unpacked = (body: Buffer) =>
    Effect.promise(() =>
      fetch(`${muster.url}${base}/archive?path=/unpacked`, {
        method: "PUT",
        body: new Uint8Array(body),
        headers: { authorization: `Bearer ${muster.key}`, prefer: "wait=30" }
      }).then((response) => response.text())
    )
  return {
    "HTTP PUT": (bytes: number) => Effect.map(put("/put", "x".repeat(bytes)), ({ text }) => text),
    "a request of tus": (bytes: number) =>
      refusedByTus(`${muster.url}${base}/uploads`, muster.key, Buffer.alloc(bytes)),
    "an archive": (bytes: number) => unpacked(archive(member({ name: "./a", content: "x".repeat(bytes) }))),
    "a copy": () =>
      Effect.map(post("copy", { copies: [{ from: "/kept", to: "/copy" }] }), ({ text }) => text),
    "many servers": () =>
      Effect.map(
        muster.request("POST", "/api/files", {
          body: { selector: { ids: [id] }, path: "/bulk", from: { server_id: id, path: "/kept" } }
        }),
        ({ text }) => text
      ),
    "OpenSSH's client": (bytes: number) => {
      writeFileSync(join(folder, "large"), Buffer.alloc(bytes))
      return Effect.match(batch(muster, id, folder, [`put ${join(folder, "large")} sftp`]), {
        onSuccess: () => "it was accepted",
        onFailure: (text) => text
      })
    }
  }
})

layer(sftpService(), { excludeTestServices: true, timeout: "120 seconds" })("the disk limit", (it) => {
  const made = Effect.gen(function* () {
    const muster = yield* Muster
    const id = yield* installed(muster, "kept", { overrides: { limits: { disk_space: LIMIT } } })
    return { muster, id, folder: join(muster.dataDir, "node/servers", id, "files") }
  })

  describe("spec 10.3: a write over the limit is refused with the figures, and leaves nothing", () => {
    it.effect.skipIf(!openssh.run)(`of bytes, by every way${openssh.note}`, () =>
      Effect.gen(function* () {
        const { folder, id, muster } = yield* made
        yield* expectStatus(muster, 201, "PUT", `${filesOf(muster, id).base}/content?path=/kept`, {
          raw: "x".repeat(2_000_000)
        })
        const before = readdirSync(folder).toSorted()
        for (const [name, way] of Object.entries(yield* waysOf(id))) {
          assert.match(yield* way(LARGE), /disk: [\d.]+ [KM]B of 3\.0 MB|Failure/, name)
          if (name === "OpenSSH's client")
            yield* expectStatus(muster, 200, "POST", `${filesOf(muster, id).base}/delete`, {
              body: { paths: ["/sftp"] }
            })
          assert.deepStrictEqual(
            readdirSync(folder)
              .filter((one) => !one.startsWith(".muster-"))
              .toSorted(),
            before,
            name
          )
        }
      }).pipe(Effect.scoped)
    )

    it.effect.skipIf(!openssh.run)(`of files, by every way${openssh.note}`, () =>
      Effect.gen(function* () {
        const { folder, id } = yield* made
        const most = fileLimit(LIMIT * 1_000_000)
        writeFileSync(join(folder, "kept"), "kept")
        assert.strictEqual(spawnSync("sh", ["-c", `seq ${most} | xargs touch`], { cwd: folder }).status, 0)
        const before = readdirSync(folder).toSorted()
        for (const [name, way] of Object.entries(yield* waysOf(id))) {
          assert.match(yield* way(1), new RegExp(`disk: \\d+ of ${most} files and folders|Failure`), name)
          assert.deepStrictEqual(readdirSync(folder).toSorted(), before, name)
        }
      }).pipe(Effect.scoped)
    )
  })
})

import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { done } from "../../cli/support.ts"
import { Muster } from "../../support/Muster.ts"
import { installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { filesOf } from "../http/support/files.ts"
import { call, openSftp, sftpService } from "./support/sftp.ts"

const names = {
  "255 bytes": "n".repeat(255),
  "255 bytes of 4-byte characters": `${"\u{1F600}".repeat(63)}abc`,
  "an é of one character": "caf\u00e9",
  "an é of two characters": "cafe\u0301",
  "a newline, a quote and a percent sign": "a\n\"b' 100%25 %FF",
  "only spaces": "  ",
  "an option": "--recursive",
  "a direction mark": "\u202egpj.exe"
}

layer(sftpService(), { excludeTestServices: true, timeout: "120 seconds" })("unusual names", (it) => {
  describe("spec 10.2", () => {
    it.effect("each name is one file over HTTP, SFTP and the command line, and none is another one", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const sftp = yield* openSftp(muster, id, muster.key)
        const { get, list, post, put } = filesOf(muster, id)
        const local = yield* temporaryFolder
        yield* call((end) => sftp.mkdir("/names", end))
        for (const [index, [what, name]] of Object.entries(names).entries()) {
          // As the API shows it.
          const shown = name.replaceAll(/%(?=25|FF)/g, "%25")
          const [path, text] = [`/names/${shown}`, `by HTTP: ${what}`]
          assert.strictEqual((yield* put(path, text)).status, 201, what)
          const read = yield* call<Buffer>((end) => sftp.readFile(`/names/${name}`, end))
          assert.strictEqual(read.toString(), text)
          yield* call((end) => sftp.writeFile(`/names/${name}`, `by SFTP: ${what}`, end))
          const got = join(local, `got-${index}`)
          yield* done("files", "get", `${id}:${path}`, got)
          assert.strictEqual(readFileSync(got, "utf8"), `by SFTP: ${what}`)
          writeFileSync(join(local, "sent"), `by command: ${what}`)
          yield* done("files", "put", join(local, "sent"), `${id}:${path}`)
          assert.strictEqual((yield* get(path)).text, `by command: ${what}`)
        }
        const listed = (yield* list("/names")).json.map(({ name }: { readonly name: string }) => name)
        assert.strictEqual(new Set(listed).size, Object.keys(names).length)
        const entries = yield* call<ReadonlyArray<{ readonly filename: string }>>((end) =>
          sftp.readdir("/names", end)
        )
        assert.deepStrictEqual(
          entries.map(({ filename }) => filename).toSorted(),
          Object.values(names).toSorted()
        )
        assert.strictEqual((yield* post("delete", { paths: ["/names"] })).status, 200)
      }).pipe(Effect.scoped)
    )

    it.effect("a path of 4,096 bytes is written and read, a longer path or name is refused", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const sftp = yield* openSftp(muster, id, muster.key)
        const { get, put } = filesOf(muster, id)
        const local = yield* temporaryFolder
        const longest = `/${"d".repeat(255)}`.repeat(16)
        assert.strictEqual(longest.length, 4096)
        assert.strictEqual((yield* put(longest, "deep")).status, 201)
        assert.strictEqual((yield* call<Buffer>((end) => sftp.readFile(longest, end))).toString(), "deep")
        yield* call((end) => sftp.writeFile(longest, "by SFTP", end))
        yield* done("files", "get", `${id}:${longest}`, join(local, "got"))
        assert.strictEqual(readFileSync(join(local, "got"), "utf8"), "by SFTP")
        for (const path of [
          `${longest.slice(0, -2)}/xy`,
          `/${"n".repeat(256)}`,
          `/${"\u{1F600}".repeat(64)}`
        ]) {
          assert.strictEqual((yield* put(path, "x")).status, 422, path)
          assert.strictEqual((yield* get(path)).status, 422, path)
          assert.match(
            yield* Effect.flip(call((end) => sftp.writeFile(path, "x", end))),
            /longer than 4096 bytes|name of more than 255 bytes/
          )
        }
      }).pipe(Effect.scoped)
    )
  })
})

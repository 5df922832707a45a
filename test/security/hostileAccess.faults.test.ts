/** A server that exchanges what callers access at the same moment (spec 10.5). */
import { spawn, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { serverId } from "../../src/contract/domain/Id.ts"
import { idBytes } from "../../src/contract/domain/idBytes.ts"
import { filesOf, places, put, refusalOf } from "../daemon/access/scene.ts"
import { eventually, until } from "../support/eventually.ts"
import { archive, member } from "../support/tar.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** Exchanges the folder `swap` for a link to `outside`, and the file `one` for a link into it, without a pause. */
const swapper = `
  const fs = require("node:fs")
  const outside = process.argv[1]
  const quietly = (run) => { try { run() } catch {} }
  fs.writeFileSync("swapping", "")
  for (;;) {
    quietly(() => fs.renameSync("swap", "aside"))
    quietly(() => fs.symlinkSync(outside, "swap"))
    quietly(() => fs.rmSync("one"))
    quietly(() => fs.symlinkSync(outside + "/secret", "one"))
    quietly(() => fs.unlinkSync("swap"))
    quietly(() => fs.renameSync("aside", "swap"))
    quietly(() => fs.unlinkSync("one"))
    quietly(() => fs.writeFileSync("one", "inside"))
  }`

const swapping = (folder: string, outside: string) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(process.execPath, ["-e", swapper, outside], { cwd: folder, stdio: "ignore" })),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )

const SECRET = "text of another server"
const ROUNDS = 120

for (const [name, place] of Object.entries(places)) {
  describe(`SECURITY: a server that swaps folders for links: ${name}`, () => {
    it.live(
      "nothing outside of the server is read or changed",
      () =>
        Effect.gen(function* () {
          const { change, files, folder, id, list, read, write } = yield* filesOf(place)
          const outside = yield* temporaryFolder
          writeFileSync(join(outside, "secret"), SECRET)
          mkdirSync(join(outside, "sub"))
          writeFileSync(join(outside, "sub/kept"), SECRET)
          mkdirSync(join(folder, "swap/sub"), { recursive: true })
          put(folder, "swap/secret", "inside")
          put(folder, "one", "inside")
          const before = statSync(outside)
          yield* swapping(folder, outside)
          yield* until("the server swaps", () => existsSync(join(folder, "swapping")))
          const seen: Array<string> = []
          const note = (effect: Effect.Effect<unknown, unknown>) =>
            Effect.map(
              Effect.matchEffect(effect, {
                onSuccess: (value) => Effect.succeed(JSON.stringify(value) ?? ""),
                onFailure: (error) => refusalOf(Effect.fail(error))
              }),
              (text) => seen.push(text)
            )
          const archived = files.archive(id, { paths: ["/"], format: "tar" }).pipe(
            Effect.flatMap(Stream.runCollect),
            Effect.map((pieces) => Buffer.concat(pieces).toString("latin1")),
            Effect.scoped
          )
          const tar = archive(
            member({ name: "./secret", content: "unpacked" }),
            member({ name: "./sub/new", content: "unpacked" })
          )
          const unpacked = (to: string) => {
            const operation_id = serverId(idBytes(16))
            const task = { kind: "unpack" as const, to, overwrite: "replace" as const }
            return files
              .receive(id, { operation_id, task }, Stream.make(tar))
              .pipe(
                Effect.andThen(
                  eventually(files.progress(id, operation_id), ({ state }) => state !== "running")
                )
              )
          }
          const round = (at: number) => [
            note(read("/swap/secret")),
            note(read("/one")),
            note(list("/swap")),
            note(write(`/swap/w${at % 7}`, "written")),
            note(write(`/swap/made${at % 5}/w`, "written")),
            note(write("/swap/secret", "inside")),
            ...(at % 4 === 0 ? [note(unpacked(`/swap/unpacked${at}`)), note(unpacked("/swap"))] : []),
            note(
              change(
                { kind: "delete", path: "/swap/sub" },
                { kind: "folder", path: "/swap/sub" },
                { kind: "mode", path: "/one", mode: "0600" },
                { kind: "copy", from: "/swap", path: `/copy${at}` },
                { kind: "delete", path: `/copy${at}` },
                { kind: "move", from: "/swap/w1", path: "/swap/sub/w1", overwrite: "replace" }
              )
            ),
            note(files.search(id, { path: "/", text: "another server", limit: 10, case_sensitive: true })),
            ...(at % 10 === 0 ? [note(archived), note(files.diff(id))] : [])
          ]
          yield* Effect.forEach(
            Array.from({ length: ROUNDS }, (_, at) => at),
            (at) => Effect.forEach(round(at), (one) => one, { concurrency: "unbounded", discard: true }),
            { concurrency: 4, discard: true }
          )
          assert.isAbove(seen.length, ROUNDS * 8)
          assert.isTrue(seen.some((text) => text === '"inside"'))
          assert.isTrue(seen.some((text) => text.startsWith("409 ")))
          assert.deepStrictEqual(
            seen.filter((text) => text.includes(SECRET) || text.startsWith("500 ")).slice(0, 3),
            []
          )
          assert.deepStrictEqual(readdirSync(outside, { recursive: true }).toSorted(), [
            "secret",
            "sub",
            "sub/kept"
          ])
          assert.strictEqual(readFileSync(join(outside, "secret"), "utf8"), SECRET)
          assert.deepStrictEqual(
            [statSync(outside).mtimeMs, statSync(outside).mode],
            [before.mtimeMs, before.mode]
          )
        }).pipe(Effect.scoped),
      300_000
    )
  })
}

describe("SECURITY: large and deep folders of a server", () => {
  it.live("of 200,000 entries, the first page takes little time and memory", () =>
    Effect.gen(function* () {
      const { folder, list } = yield* filesOf({ far: false, instanceFiles: "copy" })
      mkdirSync(join(folder, "many"))
      const made = spawnSync("sh", ["-c", "seq -f 'name-%06.0f' 1 200000 | xargs touch"], {
        cwd: join(folder, "many")
      })
      assert.strictEqual(made.status, 0)
      yield* list("/many", { limit: 10 })
      globalThis.gc?.()
      const before = process.memoryUsage().rss
      const began = performance.now()
      const page = yield* list("/many")
      const took = performance.now() - began
      const grown = process.memoryUsage().rss - before
      assert.deepStrictEqual([page.entries.length, page.next], [1000, "name-001000"])
      assert.isBelow(grown, 32 * 1024 * 1024)
      // The goal is 200 ms on a quiet machine.
      assert.isBelow(took, 2000)
      const last = yield* list("/many", { after: "name-199999" })
      assert.deepStrictEqual([last.entries.map(({ name }) => name), last.next], [["name-200000"], undefined])
    }).pipe(Effect.scoped)
  )

  it.live("a tree deeper than a path is deleted", () =>
    Effect.gen(function* () {
      const { change, folder } = yield* filesOf({ far: false, instanceFiles: "copy" })
      const nest = `const fs = require("node:fs"); for (let at = 0; at < 1000; at++) { fs.mkdirSync("d"); process.chdir("d"); fs.writeFileSync("f", "") }`
      assert.strictEqual(spawnSync(process.execPath, ["-e", nest], { cwd: folder }).status, 0)
      assert.deepStrictEqual(yield* change({ kind: "delete", path: "/d" }), [undefined])
      assert.isFalse(existsSync(join(folder, "d")))
      assert.deepStrictEqual(
        readdirSync(folder).filter((name) => name.startsWith(".muster-")),
        []
      )
    }).pipe(Effect.scoped)
  )
})

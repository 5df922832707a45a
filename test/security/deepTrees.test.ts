/** Trees of a server that are deeper, and hold more, than callers see (spec 10.3, 10.4). */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Stream } from "effect"
import { serverId } from "../../src/contract/domain/Id.ts"
import { idBytes } from "../../src/contract/domain/idBytes.ts"
import { MOST_OPEN } from "../../src/contract/nodeApi/NodeFiles.ts"
import { filesOf, places, put, refusalOf, statusesOf } from "../daemon/access/scene.ts"
import { archive, member } from "../support/tar.ts"

const plain = { far: false, instanceFiles: "copy" } as const
const hidden = { files: { deny: ["*.key"] } }

/** Makes folders in each other, and a file in the last one. */
const nest = (folder: string, depth: number, file: string) => {
  const script = `const fs = require("node:fs"); for (let at = 0; at < ${depth}; at++) { fs.mkdirSync("d"); process.chdir("d") } fs.writeFileSync("${file}", "kept")`
  assert.strictEqual(spawnSync(process.execPath, ["-e", script], { cwd: folder }).status, 0)
}

describe("spec 10.4: protected files below more folders than are looked at", () => {
  it.live("their tree is not moved, copied or deleted", () =>
    Effect.gen(function* () {
      const { change, folder } = yield* filesOf(plain, hidden)
      nest(folder, 70, "secret.key")
      const outcomes = yield* change(
        { kind: "move", from: "/d", path: "/moved" },
        { kind: "copy", from: "/d", path: "/copied" },
        { kind: "delete", path: "/d" }
      )
      assert.deepStrictEqual(statusesOf(outcomes), [422, 422, 422])
      assert.deepStrictEqual(readdirSync(folder).toSorted(), ["d", "plugins", "server.jar", "world"])
      assert.isTrue(existsSync(join(folder, "d/".repeat(70), "secret.key")))
    }).pipe(Effect.scoped)
  )

  it.live("a copy holds a bounded number of open folders: a deeper tree is refused, and leaves nothing", () =>
    Effect.gen(function* () {
      const { change, folder } = yield* filesOf(plain)
      nest(folder, 1000, "file")
      const opened = () => readdirSync("/proc/self/fd").length
      const before = opened()
      const outcomes = yield* change({ kind: "copy", from: "/d", path: "/copied" })
      const [refusal] = outcomes === "large" ? [] : outcomes
      assert.match(yield* refusalOf(Effect.fail(refusal)), /^422 .* lies more than 64 folders deep$/)
      assert.isBelow(opened() - before, 20)
      assert.deepStrictEqual(readdirSync(folder).toSorted(), ["d", "plugins", "server.jar", "world"])
    }).pipe(Effect.scoped)
  )
})

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.3, 10.4: what callers do not see: ${name}`, () => {
    it.live("the size of a folder is without it", () =>
      Effect.gen(function* () {
        const { folder, list } = yield* filesOf(place, hidden)
        writeFileSync(join(folder, "world/large.key"), Buffer.alloc(2_000_000, 1))
        writeFileSync(join(folder, "world/shown"), Buffer.alloc(200_000, 1))
        const { entries } = yield* list("/", { sizes: true })
        const size = entries.find(({ name }) => name === "world")?.size ?? 0
        assert.isAbove(size, 200_000 - 1)
        assert.isBelow(size, 1_000_000)
      }).pipe(Effect.scoped)
    )

    it.live("a listing removes nothing, also not old names of unfinished files", () =>
      Effect.gen(function* () {
        const { folder, names } = yield* filesOf(place)
        const old = ".muster-00000000-0000-0000-0000-000000000000.tmp"
        mkdirSync(join(folder, "own"))
        put(folder, `own/${old}`, "half")
        utimesSync(join(folder, "own", old), 1_700_000_000, 1_700_000_000)
        assert.deepStrictEqual(yield* names("/own"), [])
        assert.isTrue(existsSync(join(folder, "own", old)))
      }).pipe(Effect.scoped)
    )

    it.live("the refusal of an archive shows no control characters", () =>
      Effect.gen(function* () {
        const { files, id } = yield* filesOf(place, hidden)
        const tar = archive(member({ name: "./red\u001b[31m.key", content: "x" }))
        const operation_id = serverId(idBytes(16))
        const task = { kind: "unpack", to: "/to", overwrite: "fail" } as const
        const refusal = yield* refusalOf(files.receive(id, { operation_id, task }, Stream.make(tar)))
        assert.match(refusal, /^403 archive entry \.\/red.\[31m\.key: \/to\/red/)
        assert.notInclude(refusal, "\u001b")
      }).pipe(Effect.scoped)
    )

    it.live("many openings at once do not exceed the bound of a session", () =>
      Effect.gen(function* () {
        const { files, id } = yield* filesOf(place)
        const session = yield* files.session(id)
        const flags = { read: true, write: false, create: false, exclusive: false, truncate: false }
        const opened = yield* Effect.forEach(
          Array.from({ length: 2 * MOST_OPEN }, (_, at) => at),
          (at): Effect.Effect<Exit.Exit<{ readonly close: Effect.Effect<void> }, unknown>> =>
            at % 2 === 0
              ? Effect.exit(session.open("/server.jar", flags))
              : Effect.exit(session.openFolder("/")),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(opened.filter(Exit.isSuccess).length, MOST_OPEN)
        for (const exit of opened) if (Exit.isSuccess(exit)) yield* exit.value.close
        assert.match(yield* refusalOf(session.open("/missing", flags)), /^404 /)
        yield* session.open("/server.jar", flags)
      }).pipe(Effect.scoped)
    )
  })
}

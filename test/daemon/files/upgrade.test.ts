import { execFileSync } from "node:child_process"
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import { specOf } from "../support.ts"
import { ownUser, scene, text, ways, write } from "./scene.ts"

const asRoot = process.getuid?.() === 0

for (const [way, options] of Object.entries(ways)) {
  describe(`spec 3.12: upgrade: ${way}`, () => {
    /** A server with the first base, and its upgrade. */
    const upgradable = Effect.fnUntraced(function* (definition: Partial<ServerDefinition> = {}) {
      const made = yield* scene(options)
      const user = asRoot ? ownUser(45_678) : undefined
      const one = made.server(definition, undefined, user)
      yield* one.make
      const upgrade = (base: typeof made.first, next: Partial<ServerDefinition> = definition) =>
        made.service.upgrade(
          one.folder,
          base,
          { from: one.spec, to: specOf({ ...one.spec, definition: next }) },
          user
        )
      return { ...made, one, upgrade }
    })

    it.effect("whatever the server has made stays: names of any bytes, links, pipes", () =>
      Effect.gen(function* () {
        const { base, one, upgrade } = yield* upgradable()
        const { files } = one
        const odd = Buffer.concat([Buffer.from(`${files}/world/`), Buffer.from([0xdc, 0x62, 0x65, 0x72])])
        writeFileSync(odd, "over")
        const oddFolder = Buffer.concat([Buffer.from(`${files}/`), Buffer.from([0xff, 0xfe])])
        mkdirSync(oddFolder)
        writeFileSync(Buffer.concat([oddFolder, Buffer.from("/in")]), "inside")
        symlinkSync("/etc/passwd", join(files, "link"))
        writeFileSync(join(files, "own"), "own")
        linkSync(join(files, "own"), join(files, "world/same"))
        execFileSync("mkfifo", [join(files, "pipe")])
        yield* upgrade(base("second", { "server.jar": "jar2", "world/new": "n" }))
        assert.strictEqual(text(files, "server.jar"), "jar2")
        assert.strictEqual(text(files, "world/new"), "n")
        assert.isFalse(existsSync(join(files, "world/default")))
        assert.strictEqual(readFileSync(odd, "utf8"), "over")
        assert.strictEqual(readFileSync(Buffer.concat([oddFolder, Buffer.from("/in")]), "utf8"), "inside")
        assert.strictEqual(readlinkSync(join(files, "link")), "/etc/passwd")
        assert.strictEqual(statSync(join(files, "own")).ino, statSync(join(files, "world/same")).ino)
        assert.isTrue(lstatSync(join(files, "pipe")).isFIFO())
      }).pipe(Effect.scoped)
    )

    it.effect("a reinstallation keeps files whose names are not UTF-8", () =>
      Effect.gen(function* () {
        const { base, one } = yield* upgradable()
        const odd = Buffer.concat([Buffer.from(`${one.files}/world/`), Buffer.from([0xdc, 0x62, 0x65, 0x72])])
        writeFileSync(odd, "over")
        yield* one.renew(base("second", { "server.jar": "jar2" }))
        assert.strictEqual(text(one.files, "server.jar"), "jar2")
        assert.strictEqual(readFileSync(odd, "utf8"), "over")
      }).pipe(Effect.scoped)
    )

    it.effect("new copies and templates are added where the server has nothing, as its own", () =>
      Effect.gen(function* () {
        const { base, dataDir, one, upgrade, volumes } = yield* upgradable()
        write(dataDir, { "assets/a": "A", "assets/b": "B" })
        write(volumes, { "maps/m": "M" })
        writeFileSync(join(one.files, "b"), "own")
        const copy = [
          { source: "assets/a", target: "a" },
          { source: "assets/b", target: "b" }
        ]
        const maps = [{ name: "maps", source: "maps", target: "maps", mode: "cow" }] as const
        yield* upgrade(base("second", { "server.jar": "jar2" }), { copy, volumes: maps })
        assert.strictEqual(text(one.files, "a"), "A")
        assert.strictEqual(text(one.files, "b"), "own")
        assert.strictEqual(text(one.files, "maps/m"), "M")
        yield* one.reclaim
        yield* one.open
        if (asRoot) assert.strictEqual(statSync(join(one.files, "a")).uid, 45_678)
      }).pipe(Effect.scoped)
    )

    it.effect("a link that the server has put in the place of a folder is not followed", () =>
      Effect.gen(function* () {
        const { base, dataDir, one, upgrade } = yield* upgradable()
        const outside = join(dataDir, "outside")
        write(outside, { kept: "kept" })
        write(dataDir, { "assets/a": "A" })
        rmSync(join(one.files, "world"), { recursive: true })
        symlinkSync(outside, join(one.files, "world"))
        symlinkSync(outside, join(one.files, "plugins"))
        const next = base("second", { "server.jar": "jar2", "world/new": "n", "plugins/p": "p" })
        const copy = [{ source: "assets/a", target: "plugins/a" }]
        yield* Effect.ignore(upgrade(next, { copy }))
        assert.deepStrictEqual(readdirSync(outside), ["kept"])
      }).pipe(Effect.scoped)
    )
  })
}

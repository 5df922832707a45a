import { readdirSync, readFileSync, statfsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ProbeOptions, probeStorage } from "../../../src/daemon/files/storageProbe.ts"
import { until } from "../../support/eventually.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { harness } from "../support.ts"
import { fillDisk, scene, smallDisk, withXfs, write, xfsDisk } from "./scene.ts"

describe("blueprints, instances: storage strategy", () => {
  it.effect(
    "the strategy is the best one that works in the folder; a configured one that fails falls back to the next",
    () =>
      Effect.gen(function* () {
        const folder = yield* smallDisk(16)
        const strategy = (choice: "auto" | "overlay" | "reflink" | "copy", mounts = true) =>
          Effect.map(probeStorage(folder, { choice, mounts }), (storage) => storage.strategy)
        assert.deepStrictEqual(
          [
            yield* strategy("auto"),
            yield* strategy("overlay"),
            yield* strategy("reflink"),
            yield* strategy("copy"),
            yield* strategy("auto", false),
            yield* strategy("overlay", false)
          ],
          ["overlay", "overlay", "copy", "copy", "copy", "copy"]
        )
        assert.deepStrictEqual(readdirSync(folder), [])
        assert.strictEqual(mountsBelow(folder).length, 1)
      }).pipe(Effect.scoped)
  )

  it.effect.runIf(process.getuid?.() === 0)("id-mapped mounts are probed, and can be turned off", () =>
    Effect.gen(function* () {
      const folder = yield* smallDisk(16)
      const mapped = (options: ProbeOptions) =>
        Effect.map(probeStorage(folder, options), (storage) => storage.mapped)
      assert.deepStrictEqual(
        [yield* mapped({}), yield* mapped({ mapped: false }), yield* mapped({ mounts: false })],
        [
          { layers: true, binds: true },
          { layers: false, binds: false },
          { layers: false, binds: false }
        ]
      )
      assert.deepStrictEqual(readdirSync(folder), [])
    }).pipe(Effect.scoped)
  )

  it.effect("the next probe removes the files of an interrupted one", () =>
    Effect.gen(function* () {
      const folder = yield* smallDisk(16)
      write(folder, { ".probe-x/upper/file": "" })
      yield* probeStorage(folder)
      assert.deepStrictEqual(readdirSync(folder), [])
    }).pipe(Effect.scoped)
  )

  it.live(
    "on a full disk the strategy stays undetermined; the next attempt with space finds every feature",
    () =>
      Effect.gen(function* () {
        const disk = yield* smallDisk(16)
        const { first, open, server } = yield* scene({}, join(disk, "data"))
        const full = fillDisk(disk)
        assert.match((yield* Effect.flip(probeStorage(join(disk, "data/servers")))).message, /disk full/)
        const service = yield* open
        assert.strictEqual(yield* service.strategy, undefined)
        const { folder, spec } = server({})
        assert.match((yield* Effect.flip(service.make(folder, first, spec))).message, /disk full/)
        full.free()
        yield* service.make(folder, first, spec)
        assert.strictEqual(yield* service.strategy, "overlay")
        yield* service.close(folder)
        const whole = yield* probeStorage(join(disk, "data/servers"))
        assert.deepStrictEqual(whole.mapped, { layers: true, binds: true })
      }).pipe(Effect.scoped)
  )

  it.live("the node reports the strategy in its system information", () =>
    Effect.gen(function* () {
      const { daemon, notes } = yield* harness({ instanceFiles: "copy" })
      assert.strictEqual((yield* daemon.system).system.instance_files, "copy")
      yield* until("it is registered", () => notes.registrations.length > 0)
      assert.strictEqual(notes.registrations[0]?.system.instance_files, "copy")
    }).pipe(Effect.scoped)
  )

  const reflinks = withXfs ? "" : " (needs root, xfsprogs and a loop device)"
  describe.runIf(withXfs)(`copies with reflinks${reflinks}`, () => {
    it.effect("reflinked copies use no disk space; volumes under an overlay are copied in the same way", () =>
      Effect.gen(function* () {
        const disk = yield* xfsDisk
        const used = () => {
          const { bfree, blocks, bsize } = statfsSync(disk)
          return (blocks - bfree) * bsize
        }
        for (const storage of ["reflink", "overlay"] as const) {
          const { first, server, service, volumes } = yield* scene({ storage }, join(disk, storage))
          assert.strictEqual(yield* service.strategy, storage)
          write(first.folder, { big: "b".repeat(50_000_000) })
          write(volumes, { "w/level": "L".repeat(50_000_000) })
          const one = server({ volumes: [{ name: "w", source: "w", target: "world", mode: "cow" }] })
          const before = used()
          yield* one.make
          assert.isBelow(used() - before, 5_000_000)
          writeFileSync(join(volumes, "w/level"), "changed")
          assert.strictEqual(readFileSync(join(one.files, "world/level")).length, 50_000_000)
          yield* one.close
        }
      }).pipe(Effect.scoped)
    )
  })
})

import { type ChildProcess, spawnSync } from "node:child_process"
import { channel } from "node:diagnostics_channel"
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mountsAt } from "../../../src/daemon/disk/fsio.ts"
import { mounterOf, openToMount } from "../../../src/daemon/files/mounts.ts"
import { unmountBelow } from "../../support/mounts.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { ownUser, scene, write } from "./scene.ts"

const asRoot = process.getuid?.() === 0

/** Returns the names of the programs that start while the scope is open. */
const started = Effect.acquireRelease(
  Effect.sync(() => {
    const children: Array<ChildProcess> = []
    const onMessage = (message: unknown) => {
      if (typeof message !== "object" || message === null) return
      // This channel has one type of message.
      children.push((message as { readonly process: ChildProcess }).process)
    }
    channel("child_process").subscribe(onMessage)
    return { children, onMessage }
  }),
  ({ onMessage }) => Effect.sync(() => channel("child_process").unsubscribe(onMessage))
).pipe(
  Effect.map(
    ({ children }) =>
      () =>
        children.splice(0).map(({ spawnfile }) => basename(spawnfile ?? ""))
  )
)

const layersIn = Effect.fnUntraced(function* (folder: string) {
  for (const name of ["lower", "upper", "work"]) mkdirSync(join(folder, name), { recursive: true })
  writeFileSync(join(folder, "lower/below"), "below")
  const shown = { owner: { uid: 0, gid: 0 }, as: { uid: 70_201, gid: 70_202 } }
  return {
    lower: [{ handle: yield* openToMount(join(folder, "lower")), shown }],
    upper: yield* openToMount(join(folder, "upper")),
    work: yield* openToMount(join(folder, "work"))
  }
})

describe.runIf(asRoot)("files of a server: mounts (needs root)", () => {
  const volumes = [
    { name: "w", source: "w", target: "world", mode: "cow" },
    { name: "s", source: "s", target: "shared", mode: "rw" },
    { name: "r", source: "r", target: "lib/deep", mode: "ro" }
  ] as const

  it.effect("this process starts no program for mounts, and none to remove them", () =>
    Effect.gen(function* () {
      const { server, volumes: source } = yield* scene()
      write(source, { "w/level": "L", "s/all": "all", "r/x": "X" })
      const programs = yield* started
      const warm = server({ volumes }, undefined, ownUser(70_210))
      yield* warm.make
      yield* warm.close
      programs()
      const one = server({ volumes }, undefined, ownUser(70_211))
      yield* one.make
      assert.lengthOf(yield* mountsAt(one.folder), 4)
      assert.deepStrictEqual(programs(), [])
      for (const name of ["", "world", "world/level", "shared/all", "lib", "lib/deep"]) {
        const { gid, uid } = statSync(join(one.files, name))
        assert.deepStrictEqual({ name, uid, gid }, { name, uid: 70_211, gid: 70_211 })
      }
      assert.strictEqual(statSync(join(one.folder, "tree/upper/lib")).uid, 70_211)
      yield* one.close
      yield* one.open
      yield* one.close
      assert.deepStrictEqual(programs(), [])
      assert.lengthOf(yield* mountsAt(one.folder), 0)
    })
  )

  it.effect("if one mount fails, none remains", () =>
    Effect.gen(function* () {
      const { server, volumes: source } = yield* scene()
      write(source, { "w/level": "L", "s/all": "all", "r/x": "X" })
      const one = server({ volumes }, undefined, ownUser(70_212))
      yield* one.make
      yield* one.close
      // The kernel refuses a file as a work folder.
      rmSync(join(one.folder, "tree/over.0/work"), { recursive: true })
      writeFileSync(join(one.folder, "tree/over.0/work"), "")
      const failed = yield* Effect.flip(one.open)
      assert.match(failed.message, /^mount overlay at \S+\/world: overlay/)
      assert.lengthOf(yield* mountsAt(one.folder), 0)
      rmSync(join(one.folder, "tree/over.0/work"))
      mkdirSync(join(one.folder, "tree/over.0/work"))
      yield* one.open
      assert.lengthOf(yield* mountsAt(one.folder), 4)
      yield* one.close
    })
  )

  it.effect("names of any bytes are mounted, and errors give the cause", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      yield* Effect.addFinalizer(() => Effect.sync(() => unmountBelow(folder)))
      const layers = yield* layersIn(folder)
      const again = yield* openToMount(join(folder, "lower"))
      const mounter = mounterOf(true)
      const places = ["3", "a b\nc", "$x'\"`id`", "-o ro", "ü\\054,"].map((name) => join(folder, name))
      for (const [index, place] of places.entries()) {
        mkdirSync(place)
        if (index > 0) yield* mounter.bind(place, again, true, undefined)
        else yield* mounter.overlay(place, layers, "1,ro")
        assert.strictEqual(readFileSync(join(place, "below"), "utf8"), "below")
      }
      const mounts = yield* mountsAt(folder)
      assert.deepStrictEqual(
        mounts.map(({ read_only, source }) => [read_only, source === "1,ro"]),
        places.map((_, index) => [index > 0, index === 0])
      )
      const none = yield* Effect.flip(mounter.bind(join(folder, "none"), again, false, undefined))
      assert.strictEqual(none.message, `mount at ${join(folder, "none")}: No such file or directory`)
      assert.lengthOf(yield* mountsAt(folder), places.length)
    })
  )

  it.effect("once a mount is made, the helper has none of its files open", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      yield* Effect.addFinalizer(() => Effect.sync(() => unmountBelow(folder)))
      mkdirSync(join(folder, "files"))
      yield* Effect.gen(function* () {
        const layers = yield* layersIn(folder)
        yield* mounterOf(true).overlay(join(folder, "files"), layers, "test")
      }).pipe(Effect.scoped)
      // A plain unmount: an open handle would make it fail as busy.
      const { status, stderr } = spawnSync("umount", [join(folder, "files")], { encoding: "utf8" })
      assert.deepStrictEqual({ status, stderr }, { status: 0, stderr: "" })
    })
  )
})

import { spawnSync } from "node:child_process"
import { chownSync, existsSync, linkSync, lstatSync, mkdirSync, readFileSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { chownVolume } from "../../../src/daemon/files/owners.ts"
import { unmountBelow } from "../../support/mounts.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { write } from "./scene.ts"

const user = { uid: 988, gid: 989 }

/** Returns the uid of each file. */
const owners = (root: string, names: ReadonlyArray<string>) =>
  Object.fromEntries(names.map((name) => [name, lstatSync(join(root, name)).uid]))

/** A volume with root's files, and a folder beside it. */
const volume = Effect.gen(function* () {
  const root = yield* temporaryFolder
  write(root, { "v/sub/deep/f": "f", "v/g": "g", "beside/secret": "s" })
  return { root, path: join(root, "v") }
})

describe.runIf(process.getuid?.() === 0)("blueprints, volumes with rw in containers", () => {
  it.live(
    "a folder of another user is chowned with all its files; links themselves are chowned, not their targets",
    () =>
      Effect.gen(function* () {
        const { path, root } = yield* volume
        symlinkSync(join(root, "beside"), join(path, "to-folder"))
        symlinkSync(join(root, "beside/secret"), join(path, "sub/to-file"))
        chownSync(join(path, "g"), 1000, 1000)
        spawnSync("mkfifo", [join(path, "pipe")])
        yield* chownVolume(path, user)
        const names = [
          "v",
          "v/sub",
          "v/sub/deep",
          "v/sub/deep/f",
          "v/g",
          "v/pipe",
          "v/to-folder",
          "v/sub/to-file"
        ]
        assert.deepStrictEqual(owners(root, names), Object.fromEntries(names.map((name) => [name, 988])))
        assert.strictEqual(lstatSync(join(path, "sub/deep/f")).gid, 989)
        assert.deepStrictEqual(owners(root, ["beside", "beside/secret"]), { beside: 0, "beside/secret": 0 })
      }).pipe(Effect.scoped)
  )

  it.live("a folder whose top already has the uid is unchanged; a single file is chowned", () =>
    Effect.gen(function* () {
      const { path, root } = yield* volume
      yield* chownVolume(join(path, "g"), user)
      chownSync(path, 988, 0)
      yield* chownVolume(path, user)
      assert.deepStrictEqual(owners(root, ["v", "v/g", "v/sub", "v/sub/deep/f"]), {
        v: 988,
        "v/g": 988,
        "v/sub": 0,
        "v/sub/deep/f": 0
      })
    }).pipe(Effect.scoped)
  )

  it.live("a file is chowned only if all its hard links are in the volume", () =>
    Effect.gen(function* () {
      const { path, root } = yield* volume
      linkSync(join(root, "beside/secret"), join(path, "sub/secret"))
      linkSync(join(path, "g"), join(path, "sub/g"))
      yield* chownVolume(path, user)
      assert.deepStrictEqual(
        owners(root, ["v", "v/sub", "v/g", "v/sub/g", "v/sub/secret", "beside/secret"]),
        {
          v: 988,
          "v/sub": 988,
          "v/g": 988,
          "v/sub/g": 988,
          "v/sub/secret": 0,
          "beside/secret": 0
        }
      )
    }).pipe(Effect.scoped)
  )

  it.live("mounts in the volume are unchanged", () =>
    Effect.gen(function* () {
      const { path, root } = yield* volume
      const [again, disk] = [join(path, "sub/again"), join(path, "disk")]
      for (const folder of [again, disk]) mkdirSync(folder)
      yield* Effect.addFinalizer(() => Effect.sync(() => unmountBelow(path)))
      assert.strictEqual(spawnSync("mount", ["--bind", join(root, "beside"), again]).status, 0)
      assert.strictEqual(spawnSync("mount", ["-t", "tmpfs", "tmpfs", disk]).status, 0)
      write(disk, { f: "f" })
      yield* chownVolume(path, user)
      assert.deepStrictEqual(owners(root, ["v", "v/sub/deep/f", "v/disk", "v/disk/f", "beside/secret"]), {
        v: 988,
        "v/sub/deep/f": 988,
        "v/disk": 0,
        "v/disk/f": 0,
        "beside/secret": 0
      })
    }).pipe(Effect.scoped)
  )

  it.live("a folder that is swapped for a link during the chown is not followed", () =>
    Effect.gen(function* () {
      const { path, root } = yield* volume
      const swap = "mv sub away; ln -s ../beside sub; rm sub; mv away sub"
      const swaps = `cd ${path} && for i in $(seq 300); do ${swap}; done; touch ../done`
      spawnSync("sh", ["-c", `(${swaps}) >/dev/null 2>&1 &`])
      yield* chownVolume(path, user).pipe(
        Effect.andThen(Effect.sync(() => chownSync(path, 0, 0))),
        Effect.repeat({ until: () => existsSync(join(root, "done")) })
      )
      assert.deepStrictEqual(owners(root, ["beside", "beside/secret"]), { beside: 0, "beside/secret": 0 })
      assert.strictEqual(readFileSync(join(root, "beside/secret"), "utf8"), "s")
    }).pipe(Effect.scoped)
  )
})

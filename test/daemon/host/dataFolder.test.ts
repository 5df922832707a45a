import { readdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { claimDataFolder } from "../../../src/daemon/host/dataFolder.ts"
import { smallDisk } from "../files/scene.ts"

describe.runIf(process.getuid?.() === 0)("decisions 3, a daemon on a disk that is full", () => {
  it.live("does not start, says where space is needed, and leaves nothing; with room it starts", () =>
    Effect.gen(function* () {
      const disk = yield* smallDisk(1)
      const data_dir = join(disk, "node")
      const ballast = join(disk, "ballast")
      assert.throws(() => writeFileSync(ballast, Buffer.alloc(4 * 1024 * 1024)), /ENOSPC/)
      const { message } = yield* Effect.flip(claimDataFolder(data_dir))
      assert.strictEqual(
        message,
        `write ${data_dir}/daemon.lock: disk full; free space on the file system at ${disk}, then start again`
      )
      assert.deepStrictEqual(readdirSync(data_dir), [])
      rmSync(ballast)
      yield* claimDataFolder(data_dir)
      assert.deepStrictEqual(readdirSync(data_dir), ["daemon.lock"])
    }).pipe(Effect.scoped)
  )
})

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
      const dataDir = join(disk, "node")
      const ballast = join(disk, "ballast")
      assert.throws(() => writeFileSync(ballast, Buffer.alloc(4 * 1024 * 1024)), /ENOSPC/)
      const { message } = yield* Effect.flip(claimDataFolder(dataDir))
      assert.strictEqual(
        message,
        `write ${dataDir}/daemon.lock: disk full; free space on the file system at ${disk}, then start again`
      )
      assert.deepStrictEqual(readdirSync(dataDir), [])
      rmSync(ballast)
      yield* claimDataFolder(dataDir)
      assert.deepStrictEqual(readdirSync(dataDir), ["daemon.lock"])
    }).pipe(Effect.scoped)
  )
})

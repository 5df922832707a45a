import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { claimDataFolder } from "../../../src/daemon/host/dataFolder.ts"
import { smallDisk } from "../files/scene.ts"

const folders = Effect.gen(function* () {
  const disk = yield* smallDisk(1)
  const ballast = join(disk, "ballast")
  return {
    disk,
    dataDir: join(disk, "node"),
    fill: Effect.sync(() =>
      assert.throws(() => writeFileSync(ballast, Buffer.alloc(4 * 1024 * 1024)), /ENOSPC/)
    ),
    free: Effect.sync(() => rmSync(ballast))
  }
})
const lockIn = (dataDir: string) => readFileSync(join(dataDir, "daemon.lock"), "utf8")

describe.runIf(process.getuid?.() === 0)("spec 9.6: daemon on a full disk", () => {
  it.live("a first start is refused with the disk to free, and leaves no files", () =>
    Effect.gen(function* () {
      const { dataDir, disk, fill, free } = yield* folders
      yield* fill
      const { message } = yield* Effect.flip(claimDataFolder(dataDir))
      assert.strictEqual(
        message,
        `write ${dataDir}/daemon.lock: disk full; free space on the file system at ${disk}, then start again`
      )
      assert.deepStrictEqual(readdirSync(dataDir), [])
      yield* free
      yield* claimDataFolder(dataDir)
      assert.deepStrictEqual(readdirSync(dataDir), ["daemon.lock"])
    }).pipe(Effect.scoped)
  )

  const before: ReadonlyArray<readonly [string, (dataDir: string) => Effect.Effect<void, unknown>]> = [
    ["ended normally", (dataDir) => Effect.scoped(claimDataFolder(dataDir))],
    [
      "was killed",
      (dataDir) =>
        Effect.andThen(
          Effect.scoped(claimDataFolder(dataDir)),
          Effect.sync(() => writeFileSync(join(dataDir, "daemon.lock"), "1 99999999".padEnd(64)))
        )
    ],
    [
      "was killed, and left a shorter lock",
      (dataDir) =>
        Effect.andThen(
          Effect.scoped(claimDataFolder(dataDir)),
          Effect.sync(() => writeFileSync(join(dataDir, "daemon.lock"), "1 99999999\n"))
        )
    ]
  ]
  it.live.each(before)("a daemon claims the folder of a daemon that %s, and releases it", ([, end]) =>
    Effect.gen(function* () {
      const { dataDir, fill } = yield* folders
      yield* end(dataDir)
      yield* fill
      yield* Effect.gen(function* () {
        yield* claimDataFolder(dataDir)
        assert.match(lockIn(dataDir), new RegExp(`^${process.pid} \\d+ +\\n$`))
      }).pipe(Effect.scoped)
      assert.strictEqual(lockIn(dataDir).trim(), "")
    }).pipe(Effect.scoped)
  )
})

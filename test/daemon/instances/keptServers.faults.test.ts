import { readdirSync, rmSync, statfsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ServerId, serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { asRoot } from "../access/scene.ts"
import { smallDisk } from "../files/scene.ts"
import { harness, until } from "../support.ts"

const MB = 1_000_000

const freeOn = (folder: string) => {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

describe.runIf(asRoot)("spec 3.19: a node whose disk is almost full", () => {
  it.live("removes the files of deleted servers, the oldest deletion first, and no more than it needs", () =>
    Effect.gen(function* () {
      const dataDir = yield* smallDisk(200)
      const node = yield* harness({ instanceFiles: "copy", diskCheckSeconds: 0.1 }, dataDir)
      const servers = join(dataDir, "servers")
      const kept = () =>
        readdirSync(servers).flatMap((name) => /^\.kept-([a-z0-9]{12})-/.exec(name)?.[1] ?? [])
      const ids: Array<ServerId> = []
      for (let n = 0; n < 3; n++) {
        const id = yield* node.installed({ id: serverId(idBytes(16)) })
        writeFileSync(join(servers, id, "files", "world.bin"), Buffer.alloc(20 * MB))
        ids.push(id)
      }
      const living = yield* node.installed()
      writeFileSync(join(servers, living, "files", "world.bin"), Buffer.alloc(MB))
      // Not in the order of their ids or creations.
      const [first, second, third] = [ids[1], ids[2], ids[0]]
      if (first === undefined || second === undefined || third === undefined)
        return assert.fail("three servers")
      for (const id of [first, second, third]) yield* node.daemon.remove(id, { kept: true })
      assert.sameMembers(kept(), [first, second, third])
      const filler = join(dataDir, "filler.bin")
      // A twentieth of the disk is kept free.
      writeFileSync(filler, Buffer.alloc(freeOn(dataDir) - 5 * MB))
      yield* until(
        "the oldest deletion is purged",
        () => !kept().includes(first) && freeOn(dataDir) > 15 * MB
      )
      assert.sameMembers(kept(), [second, third])
      yield* until(
        "the control plane hears of it",
        () => node.notes.registrations.at(-1)?.kept?.includes(first) === false
      )
      assert.sameMembers([...(node.notes.registrations.at(-1)?.kept ?? [])], [second, third])
      writeFileSync(join(dataDir, "more.bin"), Buffer.alloc(freeOn(dataDir) - 5 * MB))
      yield* until("the next one is purged", () => !kept().includes(second) && freeOn(dataDir) > 15 * MB)
      assert.deepStrictEqual(kept(), [third])
      assert.strictEqual(readdirSync(join(servers, living, "files")).join(), "world.bin")
      for (const name of ["filler.bin", "more.bin"]) rmSync(join(dataDir, name))
    })
  )
})

import { randomBytes } from "node:crypto"
import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../../support/eventually.ts"
import { tcpProxy } from "../../support/faults/index.ts"
import { s3, startS3Server } from "../../support/s3Server.ts"
import { filesOf, places } from "../access/scene.ts"
import { createOf, downloaded, made, newId, worked } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

const MIB = 1024 * 1024

describe.skipIf(!s3.run)(`spec 12.6: an S3 server behind a network that breaks${s3.note}`, () => {
  it.live(
    "a connection that is reset at part 7 costs nothing but time, as does a slow one",
    () =>
      Effect.gen(function* () {
        const { access } = yield* startS3Server
        const proxy = yield* tcpProxy(Number(new URL(access.endpoint).port))
        const target = { ...access, endpoint: proxy.through(access.endpoint) }
        const scene = yield* filesOf(place)
        writeFileSync(join(scene.folder, "noise.bin"), randomBytes(120 * MIB))
        let stored = 0
        // Of the first answers, one is to the look at the manifest, and two are to the removal of an earlier attempt.
        yield* proxy.cutAt((chunk) => chunk.toString("latin1").startsWith("HTTP/1.1 200") && ++stored === 8)
        const { backup_id, figures, reason } = yield* made(scene, undefined, target)
        assert.strictEqual(reason, undefined)
        assert.isTrue(proxy.hasCut())
        const { sha256 } = yield* downloaded(scene, backup_id, figures, target)
        assert.strictEqual(sha256, figures?.sha256)
        rmSync(join(scene.folder, "noise.bin"))
        yield* proxy.delayed(200).inject
        const slow = yield* made(scene, undefined, target)
        assert.strictEqual(slow.reason, undefined)
        assert.strictEqual(
          (yield* downloaded(scene, slow.backup_id, slow.figures, target)).sha256,
          slow.figures?.sha256
        )
      }),
    180_000
  )

  it.live(
    "a server that goes away fails the backup with the reason; what is left goes with the backup, and the server runs on",
    () =>
      Effect.gen(function* () {
        const { access, keys } = yield* startS3Server
        const proxy = yield* tcpProxy(Number(new URL(access.endpoint).port))
        const target = { ...access, endpoint: proxy.through(access.endpoint) }
        const scene = yield* filesOf(place)
        const { backups, folder, id, node } = scene
        yield* node.daemon.power(id, "start", 30)
        yield* until("the server runs", () => node.statuses(id).includes("running"))
        writeFileSync(join(folder, "noise.bin"), randomBytes(60 * MIB))
        const task = createOf(newId())
        const operation_id = newId()
        yield* backups.work(id, { operation_id, task, target })
        yield* until(
          "a part is stored",
          Effect.map(keys, (found) => found.length > 0)
        )
        yield* proxy.dropped.inject
        const { reason, state } = yield* worked(scene, task, operation_id, target)
        assert.strictEqual(state, "failed")
        assert.match(reason ?? "", /bucket backups: .*(?:ECONNRESET|hang up)/)
        assert.notInclude(reason ?? "", access.secret_access_key)
        assert.strictEqual(node.statuses(id).at(-1), "running")
        yield* proxy.dropped.heal
        yield* backups.remove(task.backup_id, target)
        assert.deepStrictEqual(yield* keys, [])
      }),
    180_000
  )
})

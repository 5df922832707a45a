import { randomBytes } from "node:crypto"
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../../support/eventually.ts"
import { endLeftovers } from "../../support/processes.ts"
import { s3, startFront, startS3Server } from "../../support/s3Server.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { asRoot, filesOf, places, put } from "../access/scene.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { harness } from "../support.ts"
import { createOf, folderOf, manifestOf, newId, objectsOf, restoreOf, verifyOf, worked } from "./scene.ts"

const MIB = 1024 ** 2

/** A backup of the kind that the storage of the server decides. */
const defaultOf = (backup_id: string) => {
  const { contents: _, ...task } = createOf(backup_id)
  return task
}

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

describe.skipIf(!asRoot)("spec 12.12: the size of a backup of what a server has written", () => {
  it.live(
    "10 MB of changes to a base of 2 GiB take less than 15 MB",
    () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const files = "for n in 1 2 3 4 5; do echo $n > plugin$n; done"
        const id = yield* scene.node.installed({
          install: { script: `truncate -s 1G one.pak && truncate -s 1G two.pak && ${files}`, timeout: 60 }
        })
        const folder = join(scene.node.dataDir, "servers", id, "files")
        writeFileSync(join(folder, "world"), randomBytes(9_000_000))
        for (const n of [1, 2, 3, 4]) writeFileSync(join(folder, `plugin${n}`), randomBytes(250_000))
        rmSync(join(folder, "plugin5"))
        const backup_id = newId()
        const { figures, reason } = yield* worked({ ...scene, id }, defaultOf(backup_id))
        assert.strictEqual(reason, undefined)
        assert.strictEqual(figures?.kind, "written")
        assert.isAbove(figures?.size_bytes ?? 0, 2 * 1024 * MIB)
        assert.isAtLeast(manifestOf(scene, backup_id).base.bytes, 2 * 1024 * MIB)
        const own = objectsOf(scene).filter((name) => name.startsWith(`${backup_id}/`))
        const stored = own.reduce((sum, name) => sum + statSync(folderOf(scene, name)).size, 0)
        assert.isTrue(stored > 10_000_000 && stored < 15_000_000, `${stored} bytes`)
      }),
    180_000
  )
})

describe.skipIf(!s3.run || !asRoot)(`spec 12.12: a base that is stored in a bucket${s3.note}`, () => {
  it.live(
    "a daemon that is killed meanwhile leaves no manifest; the next one stores the base and the backup",
    () =>
      Effect.gen(function* () {
        const { access, keys } = yield* startS3Server
        let isSlow = true
        let isReached = false
        const front = yield* startFront(access.endpoint, ({ method, url = "" }) => {
          if (!isSlow || method !== "PUT" || !/base-.*part-00002/.test(url)) return undefined
          isReached = true
          return { status: 503, code: "SlowDown" }
        })
        const target = { ...access, endpoint: front }
        const dataDir = yield* temporaryFolder
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const daemon = yield* daemonProcess(dataDir)
        const id = newId()
        const install = { script: `head -c ${100 * MIB} /dev/urandom > game.pak && echo jar > server.jar` }
        yield* daemon.ask(`create ${JSON.stringify({ id, install })}`)
        yield* until("the server is installed", () => stateOf(dataDir, id).install?.phase === "ready")
        put(join(dataDir, "servers", id, "files"), "own.txt", "own")
        const backup_id = newId()
        const operation = newId()
        const task = defaultOf(backup_id)
        yield* daemon.ask(`backup ${id} ${operation} ${JSON.stringify({ ...task, target })}`)
        yield* until("the base is being stored", () => isReached)
        yield* daemon.kill
        isSlow = false
        const before = yield* keys
        assert.isTrue(
          before.every((key) => /\/base-[0-9a-f]{64}\/\w+-part-00001$/.test(key)),
          before.join()
        )
        const next = yield* harness({}, dataDir)
        const scene = { backups: next.daemon.backups, id }
        const { figures, reason } = yield* worked(scene, task, operation, target)
        assert.strictEqual(reason, undefined)
        const base = `/base-${figures?.base?.digest}/`
        const manifests = (yield* keys).filter((key) => key.endsWith("manifest.json"))
        assert.sameMembers(
          manifests.map((key) => key.includes(base)),
          [true, false]
        )
        const verified = yield* worked(scene, verifyOf(backup_id, figures), newId(), target)
        assert.strictEqual(verified.state, "done", verified.reason)
        const other = yield* filesOf(place)
        const restored = yield* worked(other, restoreOf(backup_id, figures), newId(), target)
        assert.strictEqual(restored.state, "done", restored.reason)
        for (const name of ["game.pak", "server.jar", "own.txt"]) {
          const [one, another] = [join(dataDir, "servers", id, "files"), other.folder].map((folder) =>
            readFileSync(join(folder, name))
          )
          assert.isTrue(one !== undefined && another?.equals(one), name)
        }
      }),
    180_000
  )
})

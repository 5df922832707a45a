import { randomBytes } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { S3Access } from "../../../src/contract/domain/BackupTarget.ts"
import { s3, startFront, startS3Server } from "../../support/s3Server.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { harness } from "../support.ts"
import { createOf, downloaded, made, newId, objectsOf, readOf, restoreOf, verifyOf, worked } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const below = ({ prefix }: S3Access, id: string, ...names: ReadonlyArray<string>) =>
  names.map((name) => `${prefix}/${id}/${name}`)

describe.skipIf(!s3.run)(`spec 12.6: targets on an S3 server${s3.note}`, () => {
  it.live(
    "a backup is made, verified, read and restored on another node, and removed; other objects stay",
    () =>
      Effect.gen(function* () {
        const { access, checks, keys, write } = yield* startS3Server
        yield* write("muster/one/zoo/readme.txt", "of another program")
        const scene = yield* filesOf(place)
        const noise = randomBytes(20 * 1024 * 1024)
        writeFileSync(join(scene.folder, "noise.bin"), noise)
        const { backup_id, figures, reason } = yield* made(scene, undefined, access)
        assert.strictEqual(reason, undefined)
        const objects = below(access, backup_id, "index-00001", "manifest.json", "part-00001", "part-00002")
        assert.deepStrictEqual(yield* keys, [...objects, "muster/one/zoo/readme.txt"].toSorted())
        assert.deepStrictEqual(objectsOf(scene), [])
        const another = yield* harness({})
        yield* checks(true)
        const { sha256 } = yield* downloaded({ backups: another.daemon.backups }, backup_id, figures, access)
        assert.strictEqual(sha256, figures?.sha256)
        const verified = yield* worked(scene, verifyOf(backup_id, figures), newId(), access)
        assert.strictEqual(verified.state, "done")
        yield* checks(false)
        const other = yield* filesOf(place)
        const restored = yield* worked(other, restoreOf(backup_id, figures), newId(), access)
        assert.strictEqual(restored.state, "done", restored.reason)
        assert.isTrue(readFileSync(join(other.folder, "noise.bin")).equals(noise))
        const again = yield* made(scene, backup_id, access)
        assert.deepStrictEqual(again.figures, figures)
        yield* another.daemon.backups.remove(backup_id, access)
        yield* another.daemon.backups.remove(backup_id, access)
        assert.deepStrictEqual(yield* keys, ["muster/one/zoo/readme.txt"])
        assert.strictEqual(
          yield* refusalOf(readOf(scene, backup_id, figures, access)),
          `404 the target does not have backup ${backup_id}`
        )
      })
  )

  it.live("spec 12.12: two nodes that store the same base at once share it, and lose no backup", () =>
    Effect.gen(function* () {
      const { access, keys } = yield* startS3Server
      const scenes = [yield* filesOf(place), yield* filesOf(place)] as const
      const written = Effect.fnUntraced(function* (scene: Scene, text: string) {
        put(scene.folder, "own.txt", text)
        const backup_id = newId()
        const task = { ...createOf(backup_id), contents: "written" as const }
        const { figures, reason } = yield* worked(scene, task, newId(), access)
        assert.strictEqual(reason, undefined)
        return { scene, backup_id, figures, text }
      })
      const made = yield* Effect.forEach(scenes, (scene, index) => written(scene, `${index}`), {
        concurrency: "unbounded"
      })
      const objects = yield* keys
      const bases = new Set(objects.flatMap((key) => /base-[0-9a-f]{64}/.exec(key) ?? []))
      assert.deepStrictEqual([...bases], [`base-${made[0]?.figures?.base?.digest}`])
      made.push(yield* written(scenes[0], "later"))
      const inBases = (all: ReadonlyArray<string>) => all.filter((key) => key.includes("base-"))
      assert.deepStrictEqual(inBases(yield* keys), inBases(objects))
      const other = yield* filesOf(place)
      for (const { backup_id, figures, scene, text } of made) {
        const verified = yield* worked(scene, verifyOf(backup_id, figures), newId(), access)
        assert.strictEqual(verified.state, "done", verified.reason)
        const restored = yield* worked(other, restoreOf(backup_id, figures), newId(), access)
        assert.strictEqual(restored.state, "done", restored.reason)
        assert.strictEqual(readFileSync(join(other.folder, "own.txt"), "utf8"), text)
        assert.strictEqual(readFileSync(join(other.folder, "server.jar"), "utf8"), "jar\n")
      }
    })
  )

  it.live("a changed object is found by verification", () =>
    Effect.gen(function* () {
      const { access, write } = yield* startS3Server
      const scene = yield* filesOf(place)
      const { backup_id, figures } = yield* made(scene, undefined, access)
      yield* write(`${access.prefix}/${backup_id}/part-00001`, "hostile")
      const verified = worked(scene, verifyOf(backup_id, figures), newId(), access)
      assert.match((yield* verified).reason ?? "", /part-00001 is damaged: it has 7 of \d+ bytes/)
    })
  )

  it.live(
    "a test says what failed: the secret, the bucket, a refused address, a host name for the bucket",
    () =>
      Effect.gen(function* () {
        const { access, checks, keys } = yield* startS3Server
        const { backups } = yield* filesOf(place)
        assert.deepStrictEqual(yield* backups.test(access), { ok: true })
        assert.deepStrictEqual(yield* backups.test({ type: "node" }), { ok: true })
        assert.deepStrictEqual(yield* keys, [])
        const reasonOf = (change: Partial<S3Access>) =>
          Effect.map(
            backups.test({ ...access, ...change }),
            ({ ok, reason = "", step }) => `${ok} ${step} ${reason}`
          )
        assert.match(
          yield* reasonOf({ bucket: "another" }),
          /^false write .*: 404 NoSuchBucket\. Check endpoint and bucket/
        )
        const hostless = { endpoint: "http://s3.invalid", path_style: false }
        assert.match(yield* reasonOf(hostless), /^false write .*backups\.s3\.invalid.* needs path_style\.$/)
        assert.match(
          yield* reasonOf({ allow_private: false }),
          /127\.0\.0\.1 is a loopback address, which only MUSTER_BACKUP_ALLOW_PRIVATE=true allows/
        )
        yield* checks(true)
        const secret = "another-secret-access-key"
        const refused = yield* reasonOf({ secret_access_key: secret })
        assert.match(
          refused,
          /^false write .*: 403 SignatureDoesNotMatch\. Check access_key_id, secret_access_key/
        )
        assert.notInclude(refused, secret)
        assert.notInclude(refused, access.access_key_id)
      })
  )

  it.live(
    "a server without checksums of its own is enough; a full one fails the backup and has nothing of it",
    () =>
      Effect.gen(function* () {
        const { access, keys } = yield* startS3Server
        const scene = yield* filesOf(place)
        writeFileSync(join(scene.folder, "noise.bin"), randomBytes(20 * 1024 * 1024))
        const plain = yield* startFront(access.endpoint, ({ headers, method }) =>
          Object.keys(headers).some((name) =>
            /^x-amz-(?:checksum|sdk|trailer)|^content-md5|^expect$/.test(name)
          ) ||
          (method === "PUT" && headers["content-length"] === undefined)
            ? { status: 501, code: "NotImplemented" }
            : undefined
        )
        const old = yield* made(scene, undefined, { ...access, endpoint: plain })
        assert.strictEqual(old.reason, undefined)
        yield* scene.backups.remove(old.backup_id, access)
        const full = yield* startFront(access.endpoint, ({ method, url = "" }) =>
          method === "PUT" && url.endsWith("part-00002")
            ? { status: 507, code: "XMinioStorageFull" }
            : undefined
        )
        const { reason, state } = yield* made(scene, undefined, { ...access, endpoint: full })
        assert.strictEqual(state, "failed")
        assert.match(reason ?? "", /^write \w+\/part-00002 to bucket backups: 507 XMinioStorageFull/)
        assert.deepStrictEqual(yield* keys, [])
      })
  )

  it.live("a request that fails for a while is repeated", () =>
    Effect.gen(function* () {
      const { access } = yield* startS3Server
      const scene = yield* filesOf(place)
      put(scene.folder, "a.txt", "a")
      let refusals = 0
      const slow = yield* startFront(access.endpoint, ({ method }) =>
        method === "PUT" && refusals++ < 2 ? { status: 503, code: "SlowDown" } : undefined
      )
      const { reason } = yield* made(scene, undefined, { ...access, endpoint: slow })
      assert.strictEqual(reason, undefined)
      assert.isAbove(refusals, 2)
    })
  )

  it.live("a cancelled backup leaves no object", () =>
    Effect.gen(function* () {
      const { access, keys } = yield* startS3Server
      const scene = yield* filesOf(place)
      writeFileSync(join(scene.folder, "noise.bin"), randomBytes(20 * 1024 * 1024))
      const task = createOf(newId())
      const stuck = yield* startFront(access.endpoint, ({ method, url = "" }) =>
        method === "PUT" && url.endsWith("part-00002") ? { status: 503, code: "SlowDown" } : undefined
      )
      const request = { operation_id: newId(), task, target: { ...access, endpoint: stuck } }
      yield* scene.backups.work(scene.id, request)
      yield* Effect.repeat(keys, { until: (found) => found.length > 0 })
      yield* scene.backups.cancel(scene.id, request)
      assert.deepStrictEqual(yield* keys, [])
    })
  )
})

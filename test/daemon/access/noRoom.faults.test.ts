import { spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { readdirSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { fileLimit } from "../../../src/contract/domain/Limits.ts"
import type { FileError, FileSession } from "../../../src/contract/nodeApi/NodeFiles.ts"
import { eventually } from "../../support/eventually.ts"
import { archive, member as tarMember } from "../../support/tar.ts"
import { describeQuotas } from "../files/quotaKernel.ts"
import { ext4Disk, fillDisk, quotaDisks, withExt4 } from "../files/scene.ts"
import { harness } from "../support.ts"
import { filesOf, refusalOf, statusesOf } from "./scene.ts"

const MEGABYTE = new Uint8Array(1_000_000)
const LIMIT = 3
const megabytes = (count: number) => Stream.fromArray(Array.from({ length: count }, () => MEGABYTE))
const remnants = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))
const writing = { read: false, write: true, create: true, exclusive: false, truncate: false }

type Scene = Effect.Success<ReturnType<typeof filesOf>>

/** Writes through a session until it is refused. */
const writeInPlace = ({ files, id }: Scene, bytes: number) =>
  Effect.gen(function* () {
    const session = yield* files.session(id)
    const file = yield* session.open("/in-place", writing)
    for (let at = 0; at < bytes; at += MEGABYTE.length) yield* file.write(at, MEGABYTE)
    yield* file.sync
  }).pipe(Effect.scoped)

/** Copies a file by a task, and fails with the reason of its end, or with the refusal of its begin. */
const copyByTask = Effect.fnUntraced(function* ({ files, id }: Scene) {
  const operation_id = serverId(idBytes(16))
  const changes = [{ kind: "copy", from: "/two", path: "/by-task" } as const]
  yield* files.begin(id, { operation_id, task: { kind: "change", changes } })
  const { reason = "", state } = yield* eventually(
    files.progress(id, operation_id),
    ({ state }) => state !== "running"
  )
  if (state === "failed")
    return yield* Effect.fail({ status: 507, detail: reason.replace(/^.*the first: /, "") })
})

/** Uploads a file in parts, and removes the upload once a part is refused. */
const uploadParts = Effect.fnUntraced(function* ({ files, id }: Scene, path: string, size: number) {
  const upload = { upload_id: randomBytes(24).toString("base64url"), owner: "key_1" }
  yield* files.uploads.begin(id, { ...upload, path, size, metadata: "" })
  const parts = Effect.gen(function* () {
    for (let at = 0; at < size; at += MEGABYTE.length)
      yield* files.uploads.append(id, { ...upload, offset: at }, Stream.make(MEGABYTE.slice()))
  })
  yield* Effect.ensuring(parts, Effect.ignore(files.uploads.end(id, upload)))
})

/** Unpacks an archive of files while it arrives. */
const unpack = Effect.fnUntraced(function* ({ files, id }: Scene, members: ReadonlyArray<Buffer>) {
  const operation_id = serverId(idBytes(16))
  const task = { kind: "unpack", to: "/unpacked", overwrite: "fail" } as const
  yield* files.receive(id, { operation_id, task }, Stream.make(archive(...members)))
})

/** Every way to write more than there is room for is refused, and leaves nothing. */
const refusesAll = Effect.fnUntraced(function* (scene: Scene, refused: RegExp, fill = () => {}) {
  const { change, files, folder, id, names } = scene
  yield* files.write(id, { path: "/two" }, megabytes(2))
  fill()
  const before = yield* names("/")
  assert.match(yield* refusalOf(files.write(id, { path: "/new/large" }, megabytes(40))), refused)
  const [copied] = yield* change({ kind: "copy", from: "/two", path: "/copy" })
  assert.match(yield* refusalOf(copied === undefined ? Effect.void : Effect.fail(copied)), refused)
  assert.match(yield* refusalOf(copyByTask(scene)), refused)
  assert.match(yield* refusalOf(uploadParts(scene, "/upload", 2_000_000)), refused)
  const member = tarMember({ name: "./large", content: "x".repeat(4_000_000) })
  assert.match(yield* refusalOf(unpack(scene, [member])), refused)
  assert.deepStrictEqual([yield* names("/"), remnants(folder)], [before, []])
  assert.match(yield* refusalOf(writeInPlace(scene, 40_000_000)), refused)
  assert.deepStrictEqual(statusesOf(yield* change({ kind: "delete", path: "/in-place" })), [200])
})

const failing = (outcomes: Effect.Success<ReturnType<Scene["change"]>>) => {
  const [refusal] = outcomes === "large" ? [] : outcomes
  return refusal === undefined ? Effect.void : Effect.fail(refusal)
}

/** Every way to make one file or folder. */
const makingFiles = (scene: Scene): Readonly<Record<string, Effect.Effect<unknown, unknown>>> => {
  const { change, files, id } = scene
  const inSession = <A>(use: (session: FileSession) => Effect.Effect<A, FileError>) =>
    Effect.scoped(Effect.flatMap(files.session(id), use))
  return {
    folder: Effect.flatMap(change({ kind: "folder", path: "/one-more" }), failing),
    copy: Effect.flatMap(change({ kind: "copy", from: "/server.jar", path: "/one-more" }), failing),
    upload: uploadParts(scene, "/one-more", 1),
    unpack: unpack(scene, [tarMember({ name: "./one", content: "" })]),
    open: inSession((session) => session.open("/one-more", writing)),
    "folder of SFTP": inSession((session) => session.change({ kind: "folder", path: "/one-more" }))
  }
}

const rules = () => {
  for (const [name, disk] of Object.entries(quotaDisks)) {
    for (const [way, options] of Object.entries({
      overlay: {},
      copies: { instanceFiles: "copy" }
    } as const)) {
      it.live(
        `${name}, ${way}: bytes and files over the limit are 507 with the figures, and leave nothing`,
        () =>
          Effect.gen(function* () {
            const node = yield* harness(options, yield* disk)
            const scene = yield* filesOf({ far: false }, { limits: { disk_space: LIMIT } }, node)
            const { change, files, folder, id } = scene
            yield* refusesAll(
              scene,
              /^507 disk: [\d.]+ [KM]B of 3\.0 MB are free(?:, at least [\d.]+ [KM]B are needed)?$/
            )
            const most = fileLimit(LIMIT * 1_000_000)
            yield* change({ kind: "delete", path: "/two" })
            const touched = spawnSync("sh", ["-c", `seq ${most - 20} | xargs touch`], { cwd: folder })
            assert.strictEqual(touched.status, 0)
            const full = Effect.forever(
              Effect.suspend(() => files.write(id, { path: `/n${readdirSync(folder).length}` }, Stream.empty))
            )
            const refused = new RegExp(`^507 disk: \\d+ of ${most} files and folders$`)
            assert.match(yield* refusalOf(full), refused)
            for (const [name, way] of Object.entries(makingFiles(scene)))
              assert.match(yield* refusalOf(way), refused, name)
            assert.deepStrictEqual(remnants(folder), [])
          }).pipe(Effect.scoped),
        60_000
      )
    }
  }
}

describeQuotas("spec 10.3: no room by project quotas", rules)

describe.runIf(withExt4)("spec 10.3: no room on the disk of the node", () => {
  it.live(
    "a write that does not fit is 507, and leaves nothing",
    () =>
      Effect.gen(function* () {
        const disk = yield* ext4Disk
        const scene = yield* filesOf({ far: false }, {}, yield* harness({}, disk))
        yield* refusesAll(scene, /^507 .*(?:disk full|do not fit on the disk of the node)/, () =>
          fillDisk(disk)
        )
      }).pipe(Effect.scoped),
    60_000
  )
})

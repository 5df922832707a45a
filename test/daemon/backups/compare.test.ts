import { createHash } from "node:crypto"
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import type { RestoredPart } from "../../../src/contract/domain/Backup.ts"
import { makeCompare } from "../../../src/daemon/backups/compare.ts"
import type { InstanceFiles } from "../../../src/daemon/files/InstanceFiles.ts"
import type { Instance } from "../../../src/daemon/instances/Instance.ts"
import { until } from "../../support/eventually.ts"
import { freshSeed } from "../../support/random.ts"
import { filesOf, places, put, refusalOf } from "../access/scene.ts"
import { compared, made, restoreOf, worked } from "./scene.ts"

interface Seen {
  readonly text: string
  readonly bytes: number
  readonly time: number
}

/** Returns all entries of a folder: type, permissions and contents. */
const seenIn = (folder: string): ReadonlyMap<string, Seen> =>
  new Map(
    ["", ...readdirSync(folder, { recursive: true, encoding: "utf8" })].map((name) => {
      const path = join(folder, name)
      const stats = lstatSync(path)
      const kind = stats.isFile()
        ? createHash("sha256").update(readFileSync(path)).digest("hex")
        : stats.isSymbolicLink()
          ? `to ${readlinkSync(path)}`
          : "folder"
      const mode = stats.isSymbolicLink() ? "" : (stats.mode & 0o7777).toString(8)
      return [
        `/${name}`,
        { text: `${kind} ${mode}`, bytes: stats.isFile() ? stats.size : 0, time: stats.ctimeMs }
      ]
    })
  )

/** The changes from one state to a later one, as a comparison has them. */
const changesOf = (before: ReadonlyMap<string, Seen>, after: ReadonlyMap<string, Seen>) => {
  const entries = (found: ReadonlyArray<readonly [string, Seen]>) => ({
    count: found.length,
    bytes: found.reduce((sum, [, { bytes }]) => sum + bytes, 0),
    first: found.map(([path]) => path).toSorted()
  })
  const [old, now] = [[...before], [...after]]
  return {
    created: entries(now.filter(([path]) => !before.has(path))),
    changed: entries(now.filter(([path, { text }]) => before.has(path) && before.get(path)?.text !== text)),
    removed: entries(old.filter(([path]) => !after.has(path)))
  }
}

const NAMES = ["a", "b.txt", "d", "d/x", "d/y", "d/e", "d/e/z", "plugins", "plugins/a.yml", "world/region"]

const change = fc.record({
  name: fc.constantFrom(...NAMES),
  to: fc.constantFrom("file", "folder", "link", "nothing", "mode"),
  text: fc.constantFrom("one", "two", "longer", ""),
  mode: fc.constantFrom(0o640, 0o644, 0o755, 0o4755)
})

/** Makes a change; where it does not fit, what is in the way goes. */
const apply = (
  folder: string,
  { mode, name, text, to }: typeof change extends fc.Arbitrary<infer A> ? A : never
) => {
  const path = join(folder, name)
  for (let at = name.indexOf("/"); at !== -1; at = name.indexOf("/", at + 1)) {
    const above = join(folder, name.slice(0, at))
    if (lstatSync(above, { throwIfNoEntry: false })?.isDirectory() === false) rmSync(above)
  }
  const isThere = lstatSync(path, { throwIfNoEntry: false }) !== undefined
  if (to === "mode") {
    if (isThere && !lstatSync(path).isSymbolicLink()) chmodSync(path, lstatSync(path).isFile() ? mode : 0o755)
    return
  }
  rmSync(path, { recursive: true, force: true })
  if (to === "nothing") return
  mkdirSync(dirname(path), { recursive: true })
  if (to === "folder") mkdirSync(path)
  if (to === "link") symlinkSync(text === "" ? "nowhere" : text, path)
  if (to === "file") writeFileSync(path, text, { mode })
}

const changes = fc.array(change, { minLength: 1, maxLength: 8 })
const part = fc.option(
  fc.record({
    mode: fc.constantFrom("replace" as const, "merge" as const),
    paths: fc.array(fc.constantFrom("/", "/d", "/d/e/z", "/plugins", "/a"), { minLength: 1, maxLength: 2 })
  }),
  { nil: undefined }
)

const ROUNDS = 4
/** Each round restores. */
const slow = 180_000

for (const [name, place] of Object.entries(places)) {
  describe(`spec 12.5: the dry run of a restore: ${name}`, () => {
    it.live(
      "it has what the restore then does, and changes nothing",
      () =>
        Effect.gen(function* () {
          const seed = freshSeed()
          const scene = yield* filesOf(place)
          const { folder } = scene
          for (const one of fc.sample(change, { numRuns: 12, seed })) apply(folder, one)
          const since = Date.now()
          const backup = yield* made(scene)
          let restores = 0
          for (const [round, [done, restored]] of fc
            .sample(fc.tuple(changes, part), { numRuns: ROUNDS, seed })
            .entries()) {
            for (const one of done) apply(folder, one)
            // The last round restores all files, also if the backup lacks the paths of the others.
            const isWhole =
              round === ROUNDS - 1 || (restored?.mode === "replace" && restored.paths.includes("/"))
            const wanted: RestoredPart | undefined = isWhole ? undefined : restored
            const what = `seed ${seed}, round ${round}: ${JSON.stringify(wanted)}`
            const before = seenIn(folder)
            const plan = yield* Effect.result(
              compared(scene, backup, {
                ...(wanted === undefined ? {} : { part: wanted }),
                ...(round % 2 === 0 ? { same_since: since } : {})
              })
            )
            assert.deepStrictEqual([...seenIn(folder)], [...before], what)
            const end = yield* worked(scene, restoreOf(backup.backup_id, backup.figures, false, wanted))
            assert.strictEqual(
              Result.isSuccess(plan) ? "done" : "failed",
              end.state,
              `${what}: ${JSON.stringify(plan)}, ${end.reason}`
            )
            const after = seenIn(folder)
            if (Result.isFailure(plan)) continue
            restores += 1
            const { changed, created, needed_bytes, removed, unchanged } = plan.success
            const sorted = ({ first, ...counts }: typeof created) => ({ ...counts, first: first.toSorted() })
            assert.deepStrictEqual(
              { created: sorted(created), changed: sorted(changed), removed: sorted(removed) },
              changesOf(before, after),
              what
            )
            if (wanted !== undefined) continue
            assert.strictEqual(unchanged.count + created.count + changed.count, after.size, what)
            assert.strictEqual(
              needed_bytes,
              [...after.values()].reduce((sum, { bytes }) => sum + 512 + bytes, 0),
              what
            )
          }
          assert.isAbove(restores, 0)
        }),
      slow
    )

    it.live("it works while the server runs, and refuses a path that the backup lacks", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place, { limits: { disk_space: 20 } })
        const { folder, id, node } = scene
        const backup = yield* made(scene)
        yield* node.daemon.power(id, "start", 30)
        put(folder, "later.txt", "later")
        const { free_bytes, removed } = yield* compared(scene, backup)
        assert.include(removed.first, "/later.txt")
        assert.isTrue(free_bytes > 0 && free_bytes < 30_000_000, String(free_bytes))
        const lacking = compared(scene, backup, { part: { mode: "replace", paths: ["/later.txt"] } })
        assert.strictEqual(yield* refusalOf(lacking), "422 the backup has no /later.txt")
        assert.isTrue(existsSync(join(folder, "later.txt")))
      })
    )
  })
}

describe("spec 12.5: the dry run of a restore of many files", () => {
  it.live("the lists of paths are bounded", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf({ far: false, instanceFiles: "copy" })
      const { folder } = scene
      for (let at = 0; at < 600; at++) {
        if (at % 200 === 0) mkdirSync(join(folder, `many${at / 200}`))
        put(folder, `many${Math.floor(at / 200)}/${at}`, String(at))
      }
      const backup = yield* made(scene)
      rmSync(join(folder, "many2"), { recursive: true })
      for (let at = 0; at < 300; at++) put(folder, `many1/new${at}`, "new")
      const { changed, created, removed } = yield* compared(scene, backup)
      assert.deepStrictEqual([created.count, changed.count, removed.count], [201, 0, 300])
      assert.lengthOf(removed.first, 100)
    })
  )
})

describe("spec 12.5: comparisons that wait for each other", () => {
  it.effect("the wait for a turn is part of the 60 s", () =>
    Effect.gen(function* () {
      // The comparison of this server never ends.
      const instance = { accesses: { run: () => Effect.never } } as unknown as Instance
      const compare = makeCompare({} as InstanceFiles["Service"])
      const fibers = yield* Effect.forEach(Array.from({ length: 3 }), () =>
        Effect.forkChild(Effect.flip(compare(instance, {}, Stream.empty)), { startImmediately: true })
      )
      yield* TestClock.adjust("60 seconds")
      for (const fiber of fibers)
        assert.propertyVal(yield* Fiber.join(fiber), "detail", "/: the files were not compared within 60 s")
    })
  )
})

describe("spec 12.5: a comparison whose caller leaves", () => {
  it.live.each([false, true])("its thread ends before the file that it reads; over HTTP: %s", (far) =>
    Effect.gen(function* () {
      const scene = yield* filesOf({ far, instanceFiles: "copy" })
      const [path, size] = [join(scene.folder, "huge.bin"), 2 ** 40]
      put(scene.folder, "huge.bin", "")
      chmodSync(path, 0o644)
      truncateSync(path, size)
      const lines = [
        { path: "/", type: "folder", mode: 0o755, mtime: 0 },
        { path: "/huge.bin", type: "file", mode: 0o644, mtime: 0, size, sha256: "0".repeat(64), at: 0 }
      ]
      const index = Stream.make(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join("")))
      const fiber = yield* Effect.forkChild(scene.backups.compare(scene.id, {}, index))
      const isRead = () =>
        readdirSync("/proc/self/fd").some((fd) => {
          try {
            return readlinkSync(`/proc/self/fd/${fd}`).endsWith("/huge.bin")
          } catch {
            return false
          }
        })
      yield* until("the file is read", isRead)
      yield* Fiber.interrupt(fiber)
      yield* until("the file is closed", () => !isRead())
    })
  )
})

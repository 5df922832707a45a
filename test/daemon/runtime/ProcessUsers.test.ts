import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { openProcessUsers } from "../../../src/daemon/runtime/ProcessUsers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const range = { first: 70000, last: 70002 }

/** Opens the users of a node on the machine with the folder `root`. */
const open = Effect.fnUntraced(function* (root: string, node: string) {
  const dataDir = join(root, node)
  mkdirSync(dataDir, { recursive: true })
  return yield* openProcessUsers({ node, dataDir, range, claimsDir: join(root, "claims") })
})
const uidOf = Effect.map(({ uid }: { readonly uid: number }) => uid)

describe("decisions 3, isolation: uids of servers", () => {
  it.live("a server gets a free uid, and keeps it until its release", () =>
    Effect.gen(function* () {
      const users = yield* open(yield* temporaryFolder, "a")
      assert.strictEqual(yield* uidOf(users.assign("one")), 70000)
      assert.strictEqual(yield* uidOf(users.assign("two")), 70001)
      assert.strictEqual(yield* uidOf(users.assign("one")), 70000)
      assert.strictEqual(users.nameOf(70001), "two")
      yield* users.release("one")
      assert.strictEqual(users.uidOf("one"), undefined)
    }).pipe(Effect.scoped)
  )

  it.live("a released uid is assigned last, also after a restart of the daemon and the machine", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      let users = yield* open(root, "a")
      const given: Array<number> = []
      for (let n = 0; n < 7; n += 1) {
        // A hostile server may leave files in /tmp, which the next server must not own.
        given.push(yield* uidOf(users.assign(`server ${n}`)))
        yield* users.release(`server ${n}`)
        if (n === 1) users = yield* open(root, "a")
        if (n === 3) {
          const claimsDir = join(root, "claims-after-boot")
          users = yield* openProcessUsers({ node: "a", dataDir: join(root, "a"), range, claimsDir })
        }
      }
      assert.deepStrictEqual(given, [70000, 70001, 70002, 70000, 70001, 70002, 70000])
    }).pipe(Effect.scoped)
  )

  it.live("the last free uid of a range is found wherever it is", () =>
    Effect.gen(function* () {
      const users = yield* open(yield* temporaryFolder, "a")
      for (const name of ["one", "two", "three"]) yield* users.assign(name)
      for (const name of ["two", "one", "three", "two"]) {
        const uid = users.uidOf(name)
        yield* users.release(name)
        assert.strictEqual(yield* uidOf(users.assign(name)), uid)
      }
    }).pipe(Effect.scoped)
  )

  it.live(
    "users.json of an older version or another range is read; the range is assigned from its first uid",
    () =>
      Effect.gen(function* () {
        for (const next of [{}, { next: 5 }, { next: 70003 }]) {
          const root = yield* temporaryFolder
          mkdirSync(join(root, "a"))
          const file = { format: 1, software: { demo: 70001 }, ...next }
          writeFileSync(join(root, "a", "users.json"), JSON.stringify(file))
          const users = yield* open(root, "a")
          assert.strictEqual(yield* uidOf(users.assign("server")), 70000)
          assert.strictEqual(yield* uidOf(users.softwareUser("demo")), 70001)
          assert.strictEqual(yield* uidOf(users.assign("other")), 70002)
        }
      }).pipe(Effect.scoped)
  )

  it.live("an exhausted range is refused with its setting and its bounds", () =>
    Effect.gen(function* () {
      const users = yield* open(yield* temporaryFolder, "a")
      for (const name of ["one", "two", "three"]) yield* users.assign(name)
      const failure = yield* Effect.flip(users.assign("four"))
      assert.strictEqual(failure.message, "every uid of MUSTER_PROCESS_UIDS (70000-70002) is in use")
      assert.include(failure.next, "larger range")
    }).pipe(Effect.scoped)
  )

  it.live("kept files reserve their uid; a server that returns gets the same uid", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const before = yield* open(root, "a")
      yield* before.assign("kept")
      yield* before.assign("server")
      const users = yield* open(root, "a")
      assert.strictEqual(users.nameOf(70001), "server")
      yield* users.reserve("lost/kept", 70000)
      assert.strictEqual(yield* uidOf(users.assign("server", 70001)), 70001)
      assert.strictEqual(yield* uidOf(users.assign("other")), 70002)
    }).pipe(Effect.scoped)
  )

  it.live("a software has one uid permanently, also after a restart of the machine", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const before = yield* open(root, "a")
      yield* before.assign("server")
      assert.strictEqual(yield* uidOf(before.softwareUser("demo")), 70001)
      const claimsDir = join(root, "claims-after-boot")
      const users = yield* openProcessUsers({ node: "a", dataDir: join(root, "a"), range, claimsDir })
      assert.strictEqual(yield* uidOf(users.assign("first")), 70002)
      assert.strictEqual(yield* uidOf(users.softwareUser("demo")), 70001)
    }).pipe(Effect.scoped)
  )

  it.live("two nodes on one machine never assign the same uid, until one data folder is removed", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const one = yield* open(root, "a")
      const other = yield* open(root, "b")
      assert.strictEqual(yield* uidOf(one.assign("server")), 70000)
      assert.strictEqual(yield* uidOf(other.assign("server")), 70001)
      // The former uid of the server is assigned by another node now.
      assert.strictEqual(yield* uidOf(other.assign("restored", 70000)), 70002)
      const dataDir = join(root, "c")
      mkdirSync(dataDir)
      const gone = yield* openProcessUsers({
        node: "c",
        dataDir,
        range: { first: 71000, last: 71000 },
        claimsDir: join(root, "claims")
      })
      yield* gone.assign("server")
      rmSync(dataDir, { recursive: true })
      const after = yield* openProcessUsers({
        node: "d",
        dataDir: root,
        range: { first: 71000, last: 71000 },
        claimsDir: join(root, "claims")
      })
      const claimed = readdirSync(join(root, "claims")).toSorted()
      assert.deepStrictEqual(claimed, ["70000", "70001", "70002"], "the claims of the removed node are gone")
      assert.strictEqual(yield* uidOf(after.assign("server")), 71000)
    }).pipe(Effect.scoped)
  )

  it.live("nodes of one machine that assign uids at the same time never give the same uid", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const claimsDir = join(root, "claims")
      const wide = { first: 70000, last: 70199 }
      mkdirSync(claimsDir)
      // Claims of nodes that are gone, and one that a daemon of an older version is writing.
      for (let uid = 70000; uid < 70100; uid += 2) {
        const claim = { node: "gone", data_dir: join(root, "gone"), name: "server" }
        writeFileSync(join(claimsDir, String(uid)), uid === 70000 ? "" : JSON.stringify(claim))
      }
      const given = yield* Effect.forEach(
        Array.from({ length: 8 }, (_, n) => `node${n}`),
        Effect.fnUntraced(function* (node) {
          const dataDir = join(root, node)
          mkdirSync(dataDir)
          const users = yield* openProcessUsers({ node, dataDir, range: wide, claimsDir })
          return yield* Effect.forEach(Array.from({ length: 20 }), (_, n) =>
            uidOf(users.assign(`server ${n}`))
          )
        }),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(new Set(given.flat()).size, 160)
      assert.notInclude(given.flat(), 70000)
    }).pipe(Effect.scoped)
  )
})

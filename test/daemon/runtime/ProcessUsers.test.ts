import { spawn } from "node:child_process"
import { chmodSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { openProcessUsers } from "../../../src/daemon/runtime/ProcessUsers.ts"
import { until } from "../../support/eventually.ts"
import { hasLive } from "../../support/processes.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

/** No process of this machine has one of these uids. */
const range = { first: 1070000, last: 1070002 }

/** Opens the users of a node on the machine with the folder `root`. */
const open = Effect.fnUntraced(function* (root: string, node: string) {
  const dataDir = join(root, node)
  mkdirSync(dataDir, { recursive: true })
  return yield* openProcessUsers({ node, dataDir, range, claimsDir: join(root, "claims") })
})
const uidOf = Effect.map(({ uid }: { readonly uid: number }) => uid)

/** Runs a process as a uid; returns the effect that ends it. */
const running = Effect.fnUntraced(function* (uid: number) {
  const as = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "sleep", "60"]
  const child = spawn("setpriv", as, { stdio: "ignore" })
  yield* Effect.addFinalizer(() => Effect.sync(() => child.kill("SIGKILL")))
  yield* until("it runs", () => hasLive(uid))
  return Effect.andThen(
    Effect.sync(() => child.kill("SIGKILL")),
    until("it has ended", () => !hasLive(uid))
  )
})

describe("process runtime: uids of servers", () => {
  it.live("a server gets a free uid, and keeps it until its release", () =>
    Effect.gen(function* () {
      const users = yield* open(yield* temporaryFolder, "a")
      assert.strictEqual(yield* uidOf(users.assign("one")), 1070000)
      assert.strictEqual(yield* uidOf(users.assign("two")), 1070001)
      assert.strictEqual(yield* uidOf(users.assign("one")), 1070000)
      assert.strictEqual(users.nameOf(1070001), "two")
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
      assert.deepStrictEqual(given, [1070000, 1070001, 1070002, 1070000, 1070001, 1070002, 1070000])
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
    "users.json without a next uid, or of another range, is read; the range is assigned from its first uid",
    () =>
      Effect.gen(function* () {
        for (const next of [{}, { next: 5 }, { next: 1070003 }]) {
          const root = yield* temporaryFolder
          mkdirSync(join(root, "a"))
          const file = { format: 1, software: { demo: 1070001 }, ...next }
          writeFileSync(join(root, "a", "users.json"), JSON.stringify(file))
          const users = yield* open(root, "a")
          assert.strictEqual(yield* uidOf(users.assign("server")), 1070000)
          assert.strictEqual(yield* uidOf(users.softwareUser("demo")), 1070001)
          assert.strictEqual(yield* uidOf(users.assign("other")), 1070002)
        }
      }).pipe(Effect.scoped)
  )

  it.live("an exhausted range is refused with its setting and its bounds", () =>
    Effect.gen(function* () {
      const users = yield* open(yield* temporaryFolder, "a")
      for (const name of ["one", "two", "three"]) yield* users.assign(name)
      assert.isTrue(users.isExhausted())
      const failure = yield* Effect.flip(users.assign("four"))
      assert.strictEqual(failure.message, "every uid of MUSTER_PROCESS_UIDS (1070000-1070002) is in use")
      assert.include(failure.next, "larger range")
      yield* users.release("two")
      assert.isFalse(users.isExhausted())
    }).pipe(Effect.scoped)
  )

  it.live("a range that has grown gives its new uids; names keep theirs", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const opened = Effect.fnUntraced(function* (last: number) {
        const claimsDir = join(root, "claims")
        return yield* openProcessUsers({ node: "a", dataDir: root, range: { ...range, last }, claimsDir })
      })
      const before = yield* opened(range.first)
      const { uid } = yield* before.assign("one")
      assert.isTrue(before.isExhausted())
      const after = yield* opened(range.last)
      yield* after.reserve("one", uid)
      assert.isFalse(after.isExhausted())
      assert.strictEqual((yield* after.assign("one")).uid, uid)
      assert.notStrictEqual((yield* after.assign("two")).uid, uid)
    }).pipe(Effect.scoped)
  )

  it.live("kept files reserve their uid; a server that returns gets the same uid", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const before = yield* open(root, "a")
      yield* before.assign("kept")
      yield* before.assign("server")
      const users = yield* open(root, "a")
      assert.strictEqual(users.nameOf(1070001), "server")
      yield* users.reserve("lost/kept", 1070000)
      assert.strictEqual(yield* uidOf(users.assign("server", 1070001)), 1070001)
      assert.strictEqual(yield* uidOf(users.assign("other")), 1070002)
    }).pipe(Effect.scoped)
  )

  it.live("a software has one uid permanently, also after a restart of the machine", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const before = yield* open(root, "a")
      yield* before.assign("server")
      assert.strictEqual(yield* uidOf(before.softwareUser("demo")), 1070001)
      const claimsDir = join(root, "claims-after-boot")
      const users = yield* openProcessUsers({ node: "a", dataDir: join(root, "a"), range, claimsDir })
      assert.strictEqual(yield* uidOf(users.assign("first")), 1070002)
      assert.strictEqual(yield* uidOf(users.softwareUser("demo")), 1070001)
    }).pipe(Effect.scoped)
  )

  it.live("two nodes on one machine never assign the same uid, until one data folder is removed", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const one = yield* open(root, "a")
      const other = yield* open(root, "b")
      assert.strictEqual(yield* uidOf(one.assign("server")), 1070000)
      assert.strictEqual(yield* uidOf(other.assign("server")), 1070001)
      // The former uid of the server is assigned by another node now.
      assert.strictEqual(yield* uidOf(other.assign("restored", 1070000)), 1070002)
      const dataDir = join(root, "c")
      mkdirSync(dataDir)
      const gone = yield* openProcessUsers({
        node: "c",
        dataDir,
        range: { first: 1071000, last: 1071000 },
        claimsDir: join(root, "claims")
      })
      yield* gone.assign("server")
      rmSync(dataDir, { recursive: true })
      const after = yield* openProcessUsers({
        node: "d",
        dataDir: root,
        range: { first: 1071000, last: 1071000 },
        claimsDir: join(root, "claims")
      })
      const claimed = readdirSync(join(root, "claims")).toSorted()
      assert.deepStrictEqual(
        claimed,
        ["1070000", "1070001", "1070002"],
        "the claims of the removed node are gone"
      )
      assert.strictEqual(yield* uidOf(after.assign("server")), 1071000)
    }).pipe(Effect.scoped)
  )

  it.live("the folder of claimed uids cannot be listed by servers, also if its mode was wider", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const claims = join(root, "claims")
      mkdirSync(claims)
      chmodSync(claims, 0o755)
      yield* open(root, "a")
      assert.strictEqual(statSync(claims).mode & 0o7777, 0o711)
    }).pipe(Effect.scoped)
  )

  it.live("nodes of one machine that assign uids at the same time never give the same uid", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      const claimsDir = join(root, "claims")
      const wide = { first: 1070000, last: 1070199 }
      mkdirSync(claimsDir)
      // Claims of nodes that are gone, and one that a daemon of an older version is writing.
      for (let uid = 1070000; uid < 1070100; uid += 2) {
        const claim = { node: "gone", data_dir: join(root, "gone"), name: "server" }
        writeFileSync(join(claimsDir, String(uid)), uid === 1070000 ? "" : JSON.stringify(claim))
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
      assert.notInclude(given.flat(), 1070000)
    }).pipe(Effect.scoped)
  )

  it.live("a uid of another node with live processes is left out without a warning", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const root = yield* temporaryFolder
      const first = 67200 + (process.pid % 1000)
      const options = { range: { first, last: first + 1 }, claimsDir: join(root, "claims") }
      mkdirSync(join(root, "a"))
      const other = yield* openProcessUsers({ ...options, node: "a", dataDir: join(root, "a") })
      assert.strictEqual(yield* uidOf(other.assign("server")), first)
      yield* running(first)
      const users = yield* openProcessUsers({ ...options, node: "b", dataDir: root })
      const logger = Logger.make(({ message }) => log.push(String(message)))
      const uid = yield* uidOf(users.assign("server")).pipe(Effect.provide(Logger.layer([logger])))
      assert.strictEqual(uid, first + 1)
      assert.deepStrictEqual(log, [])
    }).pipe(Effect.scoped)
  )

  it.live("a uid with a live process is neither assigned nor released, with one warning", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const logger = Logger.make(({ message }) => log.push(String(message)))
      const range = { first: 66100 + (process.pid % 1000), last: 66102 + (process.pid % 1000) }
      const { first } = range
      yield* Effect.gen(function* () {
        const root = yield* temporaryFolder
        const options = { node: "a", dataDir: root, range, claimsDir: join(root, "claims") }
        const users = yield* openProcessUsers(options)
        const endForeign = yield* running(first)
        assert.strictEqual(yield* uidOf(users.assign("one")), first + 1)
        const endOwn = yield* running(first + 1)
        yield* users.release("one")
        yield* users.release("one")
        assert.strictEqual(users.nameOf(first + 1), "one")
        assert.strictEqual(yield* uidOf(users.assign("two")), first + 2)
        const failure = yield* Effect.flip(users.assign("three"))
        assert.match(failure.message, /^every uid .* is in use$/)
        assert.deepStrictEqual(log, [
          `uid ${first} is not assigned: it has live processes`,
          `uid ${first + 1} of one is not released: it has live processes`
        ])
        yield* endOwn
        yield* users.release("one")
        assert.strictEqual(yield* uidOf(users.assign("three")), first + 1)
        yield* endForeign
        assert.strictEqual(yield* uidOf(users.assign("four")), first)
      }).pipe(Effect.provide(Logger.layer([logger])))
    }).pipe(Effect.scoped)
  )
})

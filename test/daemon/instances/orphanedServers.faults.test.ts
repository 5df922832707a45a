import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { NodeId, type ServerId } from "../../../src/contract/domain/Id.ts"
import type { NodeDaemonOptions } from "../../../src/daemon/NodeDaemon.ts"
import { until } from "../../support/eventually.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { temporaryFolder, temporaryFolderIn } from "../../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { ways, write } from "../files/scene.ts"
import { alive, openDaemon, pidIn, recorder, type SpecOptions, specOf } from "../support.ts"

const text = (...path: ReadonlyArray<string>) => readFileSync(join(...path), "utf8")
const namesIn = (folder: string) => (existsSync(folder) ? readdirSync(folder).sort() : [])

/** Records its stop command before it ends. */
const graceful = `sh -c 'echo $$ > pid; echo ready; read -r line; echo "$line" > world/last; exit 0'`

/** A server with a world from a template, and software of two files. */
const server = {
  install: { script: "echo one > one.txt; echo two > two.txt" },
  process: { invocation: graceful },
  definition: { volumes: [{ name: "w", source: "worlds", target: "world", mode: "cow" }] }
} as const satisfies SpecOptions

/** Opens a daemon whose control plane can lose records of servers. */
const opened = Effect.fnUntraced(function* (more: Partial<NodeDaemonOptions> = {}, given?: string) {
  const dataDir = given ?? (yield* temporaryFolder)
  write(join(dataDir, "volumes"), { "worlds/level": "template" })
  const lines: Array<string> = []
  const notes = { ...recorder(), log: lines }
  /** Returns its warnings, except those about missing features of this machine. */
  const log = () => lines.filter((line) => !line.includes("cgroup"))
  const { close, daemon } = yield* openDaemon(dataDir, notes, more)
  const statusOf = (id: string) => notes.registrations.at(-1)?.servers.find((it) => it.id === id)?.status
  const is = (id: string, status: string) =>
    until(`${id} is ${status}`, () =>
      notes.reports.some((it) => it.server_id === id && it.type === "status" && it.status === status)
    )
  const installed = Effect.fnUntraced(function* (options: SpecOptions = {}) {
    const spec = specOf({ ...server, ...options })
    yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(spec.id)))
    yield* daemon.create(spec)
    yield* is(spec.id, "offline")
    return spec.id
  })
  const start = (id: ServerId) => Effect.andThen(daemon.power(id, "start", 30), is(id, "running"))
  /** Makes the next registration report these servers as unknown. */
  const loseRecords = (...unknown: typeof notes.unknown) =>
    Effect.sync(() => {
      notes.unknown = unknown
      notes.forgotten = true
    })
  /** Returns the servers that a new registration lists. */
  const listedServers = Effect.gen(function* () {
    const before = notes.registrations.length
    notes.forgotten = true
    yield* until("it registers", () => notes.registrations.length > before)
    return notes.registrations.at(-1)?.servers.map(({ id }) => id) ?? []
  })
  const lost = join(dataDir, "lost")
  return { close, daemon, dataDir, loseRecords, installed, listedServers, log, lost, notes, start, statusOf }
})

const files = (dataDir: string, id: string) => join(dataDir, "servers", id, "files")

for (const [way, { mounts, storage }] of Object.entries<{ mounts?: boolean; storage?: "copy" }>(ways)) {
  const options = {
    ...(mounts === undefined ? {} : { mounts }),
    ...(storage === undefined ? {} : { instanceFiles: storage })
  }

  describe(`spec 9.2: orphaned servers; instances: ${way}`, () => {
    it.live("a saved orphan is stopped gracefully, unlisted, and its written files are kept", () =>
      Effect.gen(function* () {
        const { dataDir, loseRecords, installed, listedServers, log, lost, notes, start } =
          yield* opened(options)
        const id = yield* installed()
        yield* start(id)
        const at = files(dataDir, id)
        const pid = pidIn(join(at, "pid"))
        mkdirSync(join(at, "world/region"))
        write(at, { "world/region/r.0.0": "a castle", "plugins/own.jar": "own" })
        rmSync(join(at, "two.txt"))
        const reports = notes.reports.length
        yield* loseRecords({ id })
        yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))

        const kept = join(lost, id, "files")
        assert.strictEqual(text(kept, "world/region/r.0.0"), "a castle")
        assert.strictEqual(text(kept, "plugins/own.jar"), "own")
        assert.strictEqual(text(kept, "world/last"), "stop\n")
        assert.isFalse(existsSync(join(kept, "two.txt")))
        const layered = way === "overlay" && existsSync(join(lost, id, "tree"))
        assert.strictEqual(existsSync(join(kept, "one.txt")), !layered)
        const { definition, ...note } = JSON.parse(text(lost, `${id}.json`))
        assert.deepInclude(note, { format: 1, server_id: id, why: "unknown" })
        assert.strictEqual(existsSync(join(dataDir, note.base ?? "none", "one.txt")), layered)
        assert.strictEqual(definition.software, "echo")
        assert.deepStrictEqual(namesIn(lost), [id, `${id}.json`])
        assert.isFalse(existsSync(join(lost, id, "lost.json")))

        assert.isFalse(alive(pid))
        assert.deepStrictEqual(yield* listedServers, [])
        assert.deepStrictEqual(namesIn(join(dataDir, "servers")), [])
        assert.deepStrictEqual(mountsBelow(dataDir), [])
        assert.deepStrictEqual(log(), [
          `Warn the control plane's database has no record of ${id}: the server is stopped, and its files are kept in ${kept}. To recover it, copy them to a new server (docs/database.md, "Recover an orphan"); else remove ${join(lost, id)} server_id=${id}`
        ])
        // A server without a record has no reports.
        assert.strictEqual(notes.reports.length, reports)
      }).pipe(Effect.scoped)
    )
  })
}

describe("spec 9.2: orphaned servers", () => {
  it.live("an orphan that is not saved or was never installed is removed", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, loseRecords, installed, listedServers, log, lost, start } = yield* opened()
      const unsaved = yield* installed({ definition: { ...server.definition, save: false } })
      yield* start(unsaved)
      const pending = specOf({
        install: { script: "echo begun > begun; sleep 600" },
        definition: { version: "3.0" }
      })
      yield* daemon.create(pending)
      yield* until(
        "it is being installed",
        () => stateOf(dataDir, pending.id).install?.phase === "installing"
      )
      const failed = specOf({ install: { script: "exit 1" }, definition: { version: "2.0" } })
      yield* daemon.create(failed)
      yield* until("it has failed", () => stateOf(dataDir, failed.id).install?.phase === "failed")
      yield* loseRecords(...[unsaved, pending.id, failed.id].map((id) => ({ id })))
      yield* until("they are gone", () => namesIn(join(dataDir, "servers")).length === 0)
      assert.deepStrictEqual(yield* listedServers, [])
      assert.deepStrictEqual(namesIn(lost), [])
      // The installation has failed before it was an orphan.
      const ofOrphans = log().filter((line) => !line.includes("install script exited"))
      assert.deepStrictEqual(ofOrphans, [])
    }).pipe(Effect.scoped)
  )

  it.live("an orphan with a record on another node is kept in the same way; the warning names the node", () =>
    Effect.gen(function* () {
      const { dataDir, loseRecords, installed, log, lost } = yield* opened()
      const id = yield* installed()
      write(files(dataDir, id), { "world/level": "a castle" })
      yield* loseRecords({ id, node_id: NodeId.make("node-a") })
      yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))
      assert.strictEqual(text(lost, id, "files/world/level"), "a castle")
      assert.deepInclude(JSON.parse(text(lost, `${id}.json`)), { why: "elsewhere", node_id: "node-a" })
      assert.match(
        log().join(),
        new RegExp(`according to the control plane's database, ${id} is on node node-a: `)
      )
    }).pipe(Effect.scoped)
  )

  it.live("a second orphan with the same id is kept beside the first; kept files are never changed", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, loseRecords, installed, lost, notes } = yield* opened()
      const id = yield* installed()
      const names = ["first", "second", "third"]
      for (const [index, name] of names.entries()) {
        if (index > 0) {
          yield* daemon.create({ ...specOf({ ...server, id }), last_sequence: 1_000 * index })
          yield* until("installed", () => stateOf(dataDir, id).install?.phase === "ready")
        }
        write(files(dataDir, id), { "world/level": name })
        yield* loseRecords({ id })
        const kept = index === 0 ? id : `${id}-${index + 1}`
        yield* until("it is kept", () => existsSync(join(lost, `${kept}.json`)))
        notes.unknown = []
        // An operator may have removed the note.
        if (index === 0) rmSync(join(lost, `${id}.json`))
      }
      const kept = [id, `${id}-2`, `${id}-3`]
      assert.deepStrictEqual(
        kept.map((name) => text(lost, name, "files/world/level")),
        names
      )
    }).pipe(Effect.scoped)
  )

  it.live("if the `lost` folder is on another file system, the files are kept in the `servers` folder", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const far = yield* temporaryFolderIn("/dev/shm")
      symlinkSync(far, join(dataDir, "lost"))
      const { loseRecords, installed, listedServers, log } = yield* opened({}, dataDir)
      const id = yield* installed()
      write(files(dataDir, id), { "world/level": "a castle" })
      yield* loseRecords({ id })
      const near = join(dataDir, "servers/.lost")
      yield* until("it is kept", () => existsSync(join(near, `${id}.json`)))
      assert.strictEqual(text(near, id, "files/world/level"), "a castle")
      assert.include(log().join(), join(near, id, "files"))
      assert.deepStrictEqual(yield* listedServers, [])
      assert.deepStrictEqual(readdirSync(far), [])
    }).pipe(Effect.scoped)
  )

  it.live("the base of a kept orphan is kept for the same time", () =>
    Effect.gen(function* () {
      const first = yield* opened()
      const { dataDir, loseRecords, installed, lost } = first
      const id = yield* installed()
      yield* loseRecords({ id })
      yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))
      const { base } = JSON.parse(text(lost, `${id}.json`))
      yield* first.close
      if (base === undefined) return // Made by copies: the base is in the files.
      rmSync(join(dataDir, "base/echo"), { recursive: true })
      const second = yield* openDaemon(dataDir, recorder())
      // The removal of a server triggers the garbage collection of bases.
      const other = specOf()
      yield* second.daemon.create(other)
      yield* until("installed", () => stateOf(dataDir, other.id).install?.phase === "ready")
      yield* second.daemon.remove(other.id)
      assert.strictEqual(text(dataDir, base, "one.txt"), "one\n")
      rmSync(join(lost, id), { recursive: true })
      yield* second.close
      yield* openDaemon(dataDir, recorder())
      yield* until("the base is gone", () => !existsSync(join(dataDir, base)))
    }).pipe(Effect.scoped)
  )
})

describe("migration: copies that stay on the source node", () => {
  it.live("the held copy of a migrated server is removed; a copy in use is kept", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed, lost } = yield* opened()
      const given = yield* installed()
      const used = yield* installed()
      for (const id of [given, used]) write(files(dataDir, id), { "world/level": "a castle" })
      yield* daemon.hold(given, true)
      yield* daemon.remove(given, { moved: true })
      yield* daemon.remove(used, { moved: true })
      yield* daemon.remove(used, { moved: true })
      yield* until("its tree is gone", () => namesIn(join(dataDir, "servers")).length === 0)
      assert.deepStrictEqual(namesIn(lost), [used, `${used}.json`])
      assert.strictEqual(text(lost, used, "files/world/level"), "a castle")
      assert.deepInclude(JSON.parse(text(lost, `${used}.json`)), { server_id: used, why: "moved" })
    }).pipe(Effect.scoped)
  )

  it.live("a deleted server is removed, in use or not", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed, listedServers, log, lost, notes, start } = yield* opened()
      const ids = [yield* installed(), yield* installed()] as const
      for (const id of ids) yield* start(id)
      yield* daemon.remove(ids[0])
      notes.remove = [...ids]
      notes.forgotten = true
      yield* until("they are gone", () => namesIn(join(dataDir, "servers")).length === 0)
      notes.remove = []
      assert.deepStrictEqual(yield* listedServers, [])
      assert.deepStrictEqual(namesIn(lost), [])
      assert.deepStrictEqual(log(), [])
    }).pipe(Effect.scoped)
  )
})

describe("spec 9.6: daemon killed: orphaned servers", () => {
  /** Asserts that the kept orphan is complete and exists once. */
  const isWhole = (dataDir: string, id: string) => {
    const lost = join(dataDir, "lost")
    assert.deepStrictEqual(namesIn(lost), [id, `${id}.json`])
    assert.strictEqual(text(lost, id, "files/world/level"), "a castle")
    assert.strictEqual(text(lost, id, "files/own"), "own")
    assert.isFalse(existsSync(join(lost, id, "lost.json")))
    assert.deepStrictEqual(namesIn(join(dataDir, "servers")), [])
  }

  it.live(
    "after a kill at any moment the next daemon completes the work",
    () =>
      Effect.gen(function* () {
        /** The moments of the kill. */
        const moments: ReadonlyArray<(dataDir: string, id: string) => boolean> = [
          () => true,
          (dataDir, id) => stateOf(dataDir, id).status !== "running",
          (dataDir, id) =>
            existsSync(join(dataDir, "servers", id, "lost.json")) || existsSync(join(dataDir, "lost", id)),
          (dataDir, id) => existsSync(join(dataDir, "lost", id)),
          (dataDir, id) => existsSync(join(dataDir, "lost", `${id}.json`))
        ]
        for (const [number, isMoment] of moments.entries()) {
          const dataDir = yield* temporaryFolder
          write(join(dataDir, "volumes"), { "worlds/level": "template" })
          const first = yield* daemonProcess(dataDir)
          const { id } = specOf()
          yield* first.ask(`create ${JSON.stringify({ ...server, id })}`)
          yield* until("installed", () => stateOf(dataDir, id).status === "offline")
          yield* first.ask(`power ${id} start`)
          yield* until("running", () => stateOf(dataDir, id).status === "running")
          write(files(dataDir, id), { "world/level": "a castle", own: "own" })
          yield* first.ask(`forget ${id}`)
          yield* until(`moment ${number}`, () => isMoment(dataDir, id))
          yield* first.kill
          const notes = recorder()
          notes.unknown = [{ id }]
          const second = yield* openDaemon(dataDir, notes)
          yield* until(
            "it is kept, and nothing else is left",
            () =>
              existsSync(join(dataDir, "lost", `${id}.json`)) &&
              !existsSync(join(dataDir, "lost", id, "lost.json")) &&
              namesIn(join(dataDir, "servers")).length === 0
          )
          isWhole(dataDir, id)
          yield* second.close
        }
      }).pipe(Effect.scoped),
    120_000
  )

  it.live("a renamed orphan that is not complete is completed by the next start, once", () =>
    Effect.gen(function* () {
      const { close, dataDir, loseRecords, installed, lost } = yield* opened()
      const id = yield* installed()
      write(files(dataDir, id), { "world/level": "a castle", own: "own" })
      yield* loseRecords({ id })
      yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))
      yield* close
      renameSync(join(lost, `${id}.json`), join(lost, id, "lost.json"))
      const layers = join(lost, id, "tree")
      const isLayered = existsSync(layers)
      if (isLayered) {
        // The state right after the rename of the folder.
        renameSync(join(lost, id, "files"), join(layers, "upper"))
        renameSync(join(layers, "upper/world"), join(layers, "over.0/upper"))
        mkdirSync(join(layers, "upper/world"))
        mkdirSync(join(lost, id, "files"))
      }
      for (const half of isLayered ? [false, true] : [false]) {
        if (half) {
          renameSync(join(lost, `${id}.json`), join(lost, id, "lost.json"))
          renameSync(join(lost, id, "files"), join(layers, "upper"))
          mkdirSync(join(lost, id, "files"))
        }
        const again = yield* opened({}, dataDir)
        isWhole(dataDir, id)
        assert.strictEqual(again.log().length, 1)
        yield* again.close
      }
      const more = yield* opened({}, dataDir)
      isWhole(dataDir, id)
      assert.deepStrictEqual(more.log(), [])
    }).pipe(Effect.scoped)
  )

  it.live("folders that an operator has put there are unchanged", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      write(join(dataDir, "lost"), { "note.txt": "mine", "old/files/level": "mine", "odd/lost.json": "{" })
      writeFileSync(join(dataDir, "lost/empty"), "")
      const { log } = yield* opened({}, dataDir)
      assert.strictEqual(text(dataDir, "lost/old/files/level"), "mine")
      assert.strictEqual(text(dataDir, "lost/note.txt"), "mine")
      assert.match(log().join(), /^Warn the control plane has no record of odd: /)
    }).pipe(Effect.scoped)
  )
})

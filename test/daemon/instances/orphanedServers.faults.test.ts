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
import type { NodeDaemonOptions } from "../../../src/daemon/NodeDaemon.ts"
import { until } from "../../support/eventually.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { temporaryFolder, temporaryFolderIn } from "../../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { ways, write } from "../files/scene.ts"
import { alive, openDaemon, pidIn, recorder, type SpecOptions, specOf } from "../support.ts"

const text = (...path: ReadonlyArray<string>) => readFileSync(join(...path), "utf8")
const namesIn = (folder: string) => (existsSync(folder) ? readdirSync(folder).sort() : [])

/** Writes down that it was asked to stop, and takes its time. */
const graceful = `sh -c 'echo $$ > pid; echo ready; read -r line; echo "$line" > world/last; exit 0'`

/** Has a world of a template, and software of two files. */
const server = {
  install: { script: "echo one > one.txt; echo two > two.txt" },
  process: { invocation: graceful },
  definition: { volumes: [{ name: "w", source: "worlds", target: "world", mode: "cow" }] }
} as const satisfies SpecOptions

/** A daemon whose control plane forgets servers. */
const opened = Effect.fnUntraced(function* (more: Partial<NodeDaemonOptions> = {}, given?: string) {
  const dataDir = given ?? (yield* temporaryFolder)
  write(join(dataDir, "volumes"), { "worlds/level": "template" })
  const lines: Array<string> = []
  const notes = { ...recorder(), log: lines }
  /** What it has warned of, but for what this machine lacks. */
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
  const start = (id: string) => Effect.andThen(daemon.power(id, "start", 30), is(id, "running"))
  /** What the control plane says at the next registration. */
  const forgets = (...unknown: typeof notes.unknown) =>
    Effect.sync(() => {
      notes.unknown = unknown
      notes.forgotten = true
    })
  /** What it lists at a registration from now on. */
  const lists = Effect.gen(function* () {
    const before = notes.registrations.length
    notes.forgotten = true
    yield* until("it registers", () => notes.registrations.length > before)
    return notes.registrations.at(-1)?.servers.map(({ id }) => id) ?? []
  })
  const lost = join(dataDir, "lost")
  return { close, daemon, dataDir, forgets, installed, lists, log, lost, notes, start, statusOf }
})

const files = (dataDir: string, id: string) => join(dataDir, "servers", id, "files")

for (const [way, { mounts, storage }] of Object.entries<{ mounts?: boolean; storage?: "copy" }>(ways)) {
  const options = {
    ...(mounts === undefined ? {} : { mounts }),
    ...(storage === undefined ? {} : { instance_files: storage })
  }

  describe(`node-protocol, register: servers that are not known; instances: ${way}`, () => {
    it.live("one that is saved stops as asked, is not listed any more, and what it has written is kept", () =>
      Effect.gen(function* () {
        const { dataDir, forgets, installed, lists, log, lost, notes, start } = yield* opened(options)
        const id = yield* installed()
        yield* start(id)
        const at = files(dataDir, id)
        const pid = pidIn(join(at, "pid"))
        mkdirSync(join(at, "world/region"))
        write(at, { "world/region/r.0.0": "a castle", "plugins/own.jar": "own" })
        rmSync(join(at, "two.txt"))
        const reports = notes.reports.length
        yield* forgets({ id })
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
        assert.deepStrictEqual(yield* lists, [])
        assert.deepStrictEqual(namesIn(join(dataDir, "servers")), [])
        assert.deepStrictEqual(mountsBelow(dataDir), [])
        assert.deepStrictEqual(log(), [
          `Warn the control plane's database has no record of ${id}: the server is stopped, and its files are kept in ${kept}. To recover it, copy them to a new server (docs/database.md, "Recover an orphan"); else remove ${join(lost, id)}`
        ])
        // Nobody is told: nobody knows it.
        assert.strictEqual(notes.reports.length, reports)
      }).pipe(Effect.scoped)
    )
  })
}

describe("node-protocol, register: servers that are not known", () => {
  it.live("one that is not saved, or was never installed, is removed", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, forgets, installed, lists, log, lost, start } = yield* opened()
      const passing = yield* installed({ definition: { ...server.definition, save: false } })
      yield* start(passing)
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
      yield* forgets(...[passing, pending.id, failed.id].map((id) => ({ id })))
      yield* until("they are gone", () => namesIn(join(dataDir, "servers")).length === 0)
      assert.deepStrictEqual(yield* lists, [])
      assert.deepStrictEqual(namesIn(lost), [])
      assert.deepStrictEqual(log(), [])
    }).pipe(Effect.scoped)
  )

  it.live("one that has a record on another node is kept just so, and the line says where it is", () =>
    Effect.gen(function* () {
      const { dataDir, forgets, installed, log, lost } = yield* opened()
      const id = yield* installed()
      write(files(dataDir, id), { "world/level": "a castle" })
      yield* forgets({ id, node_id: "node-a" })
      yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))
      assert.strictEqual(text(lost, id, "files/world/level"), "a castle")
      assert.deepInclude(JSON.parse(text(lost, `${id}.json`)), { why: "elsewhere", node_id: "node-a" })
      assert.match(
        log().join(),
        new RegExp(`according to the control plane's database, ${id} is on node node-a: `)
      )
    }).pipe(Effect.scoped)
  )

  it.live("one that comes again is kept beside the first; what is there is never touched", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, forgets, installed, lost, notes } = yield* opened()
      const id = yield* installed()
      const names = ["first", "second", "third"]
      for (const [index, name] of names.entries()) {
        if (index > 0) {
          yield* daemon.create({ ...specOf({ ...server, id }), last_sequence: 1_000 * index })
          yield* until("installed", () => stateOf(dataDir, id).install?.phase === "ready")
        }
        write(files(dataDir, id), { "world/level": name })
        yield* forgets({ id })
        const kept = index === 0 ? id : `${id}-${index + 1}`
        yield* until("it is kept", () => existsSync(join(lost, `${kept}.json`)))
        notes.unknown = []
        // People may have done with a note.
        if (index === 0) rmSync(join(lost, `${id}.json`))
      }
      const kept = [id, `${id}-2`, `${id}-3`]
      assert.deepStrictEqual(
        kept.map((name) => text(lost, name, "files/world/level")),
        names
      )
    }).pipe(Effect.scoped)
  )

  it.live("files on another file system than the folder of the lost are kept beside the servers", () =>
    Effect.gen(function* () {
      const dataDir = yield* temporaryFolder
      const far = yield* temporaryFolderIn("/dev/shm")
      symlinkSync(far, join(dataDir, "lost"))
      const { forgets, installed, lists, log } = yield* opened({}, dataDir)
      const id = yield* installed()
      write(files(dataDir, id), { "world/level": "a castle" })
      yield* forgets({ id })
      const near = join(dataDir, "servers/.lost")
      yield* until("it is kept", () => existsSync(join(near, `${id}.json`)))
      assert.strictEqual(text(near, id, "files/world/level"), "a castle")
      assert.include(log().join(), join(near, id, "files"))
      assert.deepStrictEqual(yield* lists, [])
      assert.deepStrictEqual(readdirSync(far), [])
    }).pipe(Effect.scoped)
  )

  it.live("the base below what is kept stays for as long as it is kept", () =>
    Effect.gen(function* () {
      const first = yield* opened()
      const { dataDir, forgets, installed, lost } = first
      const id = yield* installed()
      yield* forgets({ id })
      yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))
      const { base } = JSON.parse(text(lost, `${id}.json`))
      yield* first.close
      if (base === undefined) return // made by copies: it is in the files
      rmSync(join(dataDir, "base/echo"), { recursive: true })
      const second = yield* openDaemon(dataDir, recorder())
      // The next removal looks for bases that nobody needs.
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

describe("move: what a server has left on a node, and a database that is older", () => {
  it.live("what was given away goes; what was in use is kept", () =>
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

  it.live("what was deleted goes, in use or not", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed, lists, log, lost, notes, start } = yield* opened()
      const ids = [yield* installed(), yield* installed()]
      for (const id of ids) yield* start(id)
      yield* daemon.remove(ids[0] ?? "")
      notes.remove = ids
      notes.forgotten = true
      yield* until("they are gone", () => namesIn(join(dataDir, "servers")).length === 0)
      notes.remove = []
      assert.deepStrictEqual(yield* lists, [])
      assert.deepStrictEqual(namesIn(lost), [])
      assert.deepStrictEqual(log(), [])
    }).pipe(Effect.scoped)
  )
})

describe("node-protocol, daemon killed: servers that are not known", () => {
  /** All of it is in its place, once, whatever has happened on the way. */
  const isWhole = (dataDir: string, id: string) => {
    const lost = join(dataDir, "lost")
    assert.deepStrictEqual(namesIn(lost), [id, `${id}.json`])
    assert.strictEqual(text(lost, id, "files/world/level"), "a castle")
    assert.strictEqual(text(lost, id, "files/own"), "own")
    assert.isFalse(existsSync(join(lost, id, "lost.json")))
    assert.deepStrictEqual(namesIn(join(dataDir, "servers")), [])
  }

  it.live(
    "the daemon is killed at any moment: the next one goes on",
    () =>
      Effect.gen(function* () {
        /** It is killed as soon as it has come so far. */
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

  it.live("what was renamed and not put in order is put in order by the next start, once", () =>
    Effect.gen(function* () {
      const { close, dataDir, forgets, installed, lost } = yield* opened()
      const id = yield* installed()
      write(files(dataDir, id), { "world/level": "a castle", own: "own" })
      yield* forgets({ id })
      yield* until("it is kept", () => existsSync(join(lost, `${id}.json`)))
      yield* close
      renameSync(join(lost, `${id}.json`), join(lost, id, "lost.json"))
      const layers = join(lost, id, "tree")
      const isLayered = existsSync(layers)
      if (isLayered) {
        // As it was when the folder had just been renamed.
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

  it.live("a folder that people have put there is left alone, whatever it is", () =>
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

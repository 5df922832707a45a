import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { debianProgram } from "../../support/debianPrograms.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { newId, openDaemon, recorder, specOf } from "../support.ts"

/** A uid range per test process, so that concurrent tests do not collide. */
const FIRST = 56_000 + (process.pid % 4000)

const chattr = debianProgram("chattr", "e2fsprogs")

const immutable = (path: string, on: boolean) => spawnSync(chattr.path, [on ? "+i" : "-i", path]).status === 0

/** Makes a file that root cannot remove until the scope ends or `free` is called. */
const stuckFile = Effect.fnUntraced(function* (servers: string, id: string) {
  const part = existsSync(join(servers, id, "tree")) ? "tree/upper" : "files"
  mkdirSync(join(servers, id, part, "deep"))
  const path = join(servers, id, part, "deep/stuck")
  writeFileSync(path, "x")
  if (!immutable(path, true)) return yield* Effect.die(new Error(`${path} cannot be made immutable`))
  const paths = () => readdirSync(servers).map((name) => join(servers, name, part, "deep/stuck"))
  const free = Effect.sync(() => paths().some((at) => existsSync(at) && immutable(at, false)))
  yield* Effect.addFinalizer(() => free)
  return { free }
})

const asRoot = process.geteuid?.() === 0

describe.runIf(asRoot && chattr.run)(
  `spec 9.4: DELETE of a server with irremovable files (needs root)${chattr.note}`,
  () => {
    it.live(
      "the call succeeds; the files are removed later, and reserve the uid until then, also after kill -9",
      () =>
        Effect.gen(function* () {
          const dataDir = yield* temporaryFolder
          const servers = join(dataDir, "servers")
          const removed = () => readdirSync(servers).filter((name) => name.startsWith(".removed-"))
          // One uid for the software and one for a server; the probe uses the last of the range.
          const uids = { first: FIRST, last: FIRST + 1 }
          const isolation = { mode: "auto", uids, hidden: [], claimsDir: join(dataDir, "claims") } as const

          const first = yield* daemonProcess(dataDir, "", "", "test-node", JSON.stringify(isolation))
          const id = newId()
          yield* first.ask(`create ${JSON.stringify({ id })}`)
          yield* until("installed", () => stateOf(dataDir, id).status === "offline")
          const { uid } = stateOf(dataDir, id)
          assert.include([uids.first, uids.last], uid)
          const file = yield* stuckFile(servers, id)
          yield* first.ask(`remove ${id}`)
          const [name = "", ...more] = removed()
          assert.deepStrictEqual([name.startsWith(`.removed-${id}-`), more], [true, []])
          yield* first.kill

          const notes = { ...recorder(), log: [] as Array<string> }
          const { daemon } = yield* openDaemon(dataDir, notes, { isolation })
          const failed = specOf()
          yield* daemon.create(failed)
          const installs = () =>
            notes.reports.flatMap((it) =>
              it.type === "install-status" && it.server_id === failed.id ? [it.install] : []
            )
          yield* until("its installation has failed", () => installs().at(-1)?.phase === "failed")
          const all = `every uid of MUSTER_PROCESS_UIDS (${uids.first}-${uids.last}) is in use`
          assert.include(installs().at(-1)?.failure_reason, all)
          assert.deepStrictEqual(removed(), [name])
          const warning =
            /^Warn the folder of a removed server cannot be deleted, retrying: .*: Operation not permitted$/
          yield* until("the warning is logged", () => notes.log.some((line) => warning.test(line)))
          assert.isTrue(yield* file.free)
          yield* until("the files are gone", () => removed().length === 0)
          const again = Effect.andThen(
            Effect.ignore(daemon.reinstall(failed.id)),
            until("it is installed again", () => installs().at(-1)?.phase !== "installing")
          )
          yield* Effect.repeat(again, { until: () => installs().at(-1)?.phase === "ready", times: 100 })
          assert.strictEqual(stateOf(dataDir, failed.id).uid, uid)
          yield* daemon.power(failed.id, "start", 30)
          yield* until("it runs", () => stateOf(dataDir, failed.id).status === "running")
          yield* daemon.remove(failed.id)
          yield* until("nothing is left", () => readdirSync(servers).length === 0)
        }).pipe(Effect.scoped)
    )

    it.live("a server with the same id gets another uid and new files", () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const servers = join(dataDir, "servers")
        const isolation = {
          uids: { first: FIRST + 10, last: FIRST + 19 },
          mode: "auto",
          claimsDir: join(dataDir, "claims")
        } as const
        const { daemon } = yield* openDaemon(dataDir, recorder(), { isolation })
        const spec = specOf()
        const installed = until("installed", () => stateOf(dataDir, spec.id).status === "offline")
        yield* daemon.create(spec)
        yield* installed
        const { uid } = stateOf(dataDir, spec.id)
        const files = join(servers, spec.id, "files")
        const file = yield* stuckFile(servers, spec.id)
        yield* daemon.remove(spec.id)
        yield* daemon.create({ ...spec, last_sequence: 1000 })
        yield* installed
        const again = stateOf(dataDir, spec.id).uid
        assert.notStrictEqual(again, uid)
        writeFileSync(join(files, "own"), "own")
        assert.isTrue(yield* file.free)
        yield* until("the earlier files are gone", () => readdirSync(servers).length === 1)
        assert.strictEqual(readFileSync(join(files, "own"), "utf8"), "own")
        // The completed removal did not release the uid of the new server.
        const other = specOf()
        yield* daemon.create(other)
        assert.notStrictEqual(stateOf(dataDir, other.id).uid, again)
        for (const { id } of [spec, other]) yield* daemon.remove(id)
        yield* until("nothing is left", () => readdirSync(servers).length === 0)
      }).pipe(Effect.scoped)
    )
  }
)

/** The settings for the isolation of processes, and the level that the service reports. */

import { chownSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { openIsolation } from "../../src/daemon/runtime/isolation.ts"
import { daemonProcessAs, stateOf } from "../daemon/daemonChild.ts"
import { fillDisk, fillWithFiles, smallDisk } from "../daemon/files/scene.ts"
import { newId, openDaemon, recorder, specOf } from "../daemon/support.ts"
import { until } from "../support/eventually.ts"
import { otherUsers } from "../support/otherUsers.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder, temporaryFolderIn } from "../support/temporaryFolder.ts"

const WARNING = "servers run as this user and can read its keys and each other's files"
const ORDINARY = 12_345

/** An ordinary user without user namespaces. */
const withoutNamespaces = [
  ...["unshare", "--user", `--map-user=${ORDINARY}`, `--map-group=${ORDINARY}`, "--keep-caps"],
  ...["sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"],
  ...["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
]

const systemOf = (env: Record<string, string>) =>
  Effect.gen(function* () {
    const service = yield* startService({ env })
    const [node] = (yield* service.request("GET", "/api/nodes")).json
    const { json } = yield* service.request("GET", `/api/nodes/${node.id}/system`)
    return { isolation: json.system.isolation, output: service.output() }
  })

describe("SECURITY: MUSTER_PROCESS_ISOLATION", () => {
  it.live("auto isolates processes, and the node shows the level", () =>
    Effect.gen(function* () {
      const { isolation, output } = yield* systemOf({ MUSTER_EMBEDDED_RUNTIME: "process" })
      const level = process.geteuid?.() === 0 ? "user+namespaces" : "namespaces"
      assert.deepStrictEqual(isolation, { process: level })
      assert.notInclude(output, WARNING)
      assert.include(output, `plain processes are isolated by ${level}`)
    }).pipe(Effect.scoped)
  )

  it.live("none isolates nothing, and the start logs a warning", () =>
    Effect.gen(function* () {
      const { isolation, output } = yield* systemOf({
        MUSTER_EMBEDDED_RUNTIME: "process",
        MUSTER_PROCESS_ISOLATION: "none"
      })
      assert.deepStrictEqual(isolation, { process: "none" })
      assert.include(output, `${WARNING}: MUSTER_PROCESS_ISOLATION is none`)
    }).pipe(Effect.scoped)
  )

  it.live(
    "required refuses the process runtime if processes cannot be isolated; existing servers do not start",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const before = recorder()
        const first = yield* openDaemon(dataDir, before)
        const id = newId()
        yield* first.daemon.create(specOf({ id }))
        yield* until("installed", () => stateOf(dataDir, id).status === "offline")
        yield* first.close
        const log: Array<string> = []
        const notes = { ...recorder(), log }
        const { daemon } = yield* openDaemon(dataDir, notes, { isolation: { mode: "required", levels: [] } })
        yield* until("registered", () => notes.registrations.length > 0)
        assert.deepStrictEqual(notes.registrations[0]?.runtimes, [])
        assert.deepStrictEqual((yield* daemon.system).system.isolation, {})
        assert.isTrue(log.some((line) => line.startsWith("Error plain processes cannot be isolated")))
        const refused = yield* Effect.flip(daemon.power(id, "start", 30))
        assert.include("detail" in refused ? refused.detail : "", "MUSTER_PROCESS_ISOLATION is required")
        yield* daemon.remove(id)
      }).pipe(Effect.scoped)
  )

  it.live.runIf(otherUsers.run)(
    `without user namespaces, a daemon of an ordinary user isolates nothing and applies the setting${otherUsers.note}`,
    () =>
      Effect.gen(function* () {
        const data = yield* temporaryFolderIn("/tmp")
        chownSync(data, process.geteuid?.() ?? 0, process.getegid?.() ?? 0)
        const args = (mode: string) => ["", "", "test-node", JSON.stringify({ mode })]
        const required = yield* daemonProcessAs(withoutNamespaces, data, ...args("required"))
        assert.strictEqual(required.level, "undefined")
        yield* required.kill
        const auto = yield* daemonProcessAs(withoutNamespaces, data, ...args("auto"))
        assert.strictEqual(auto.level, "none")
        const id = newId()
        yield* auto.ask(`create ${JSON.stringify({ id })}`)
        yield* until("installed", () => stateOf(data, id).status === "offline")
        yield* auto.ask(`power ${id} start 30`)
        yield* until("runs", () => stateOf(data, id).status === "running")
        yield* auto.ask(`remove ${id}`)
      }).pipe(Effect.scoped)
  )
})

describe.runIf(process.getuid?.() === 0)("SECURITY, process runtime: a full disk (needs root)", () => {
  const optionsOf = (disk: string) => ({
    mode: "auto" as const,
    uids: { first: 76_900, last: 76_910 },
    dataDir: disk,
    hidden: [],
    claimsDir: join(disk, "claims")
  })
  const open = (disk: string) => openIsolation(optionsOf(disk), "test-node", "/usr/bin:/bin")

  it.live("a full disk does not change the level, because the check at the start writes nothing", () =>
    Effect.gen(function* () {
      const disk = yield* smallDisk(1)
      const { free } = fillDisk(disk)
      const { current } = yield* open(disk)
      const { level, refused } = yield* current
      assert.deepStrictEqual([level, refused], ["user+namespaces", undefined])
      free()
    }).pipe(Effect.scoped)
  )

  it.live(
    "a disk without free inodes does not lower the level: the runtime is unavailable until space is freed",
    () =>
      Effect.gen(function* () {
        const disk = yield* smallDisk(4, 40)
        mkdirSync(join(disk, "claims"))
        const { free } = fillWithFiles(disk)
        const { current, users } = yield* open(disk)
        const refused = yield* Effect.flip(current)
        assert.match(refused.message, /cannot be isolated: user\+namespaces: .*disk full/)
        // Uids of running servers can still be reserved.
        yield* users?.reserve("srv_running", 76_900) ?? Effect.void
        assert.match((yield* Effect.flip(current)).message, /disk full/)
        free()
        const found = yield* current
        assert.strictEqual(found.level, "user+namespaces")
        assert.strictEqual(yield* current, found)
        assert.notStrictEqual((yield* found.users?.assign("srv_new") ?? Effect.die("no uids")).uid, 76_900)
      }).pipe(Effect.scoped)
  )
})

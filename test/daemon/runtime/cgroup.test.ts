import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { limitFiles, openCgroups } from "../../../src/daemon/runtime/cgroup.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { harness, openDaemon, recorder, specOf } from "../support.ts"

/** A folder that simulates a cgroup v2 hierarchy. */
const standIn = Effect.map(temporaryFolder, (root) => {
  writeFileSync(join(root, "cgroup.controllers"), "cpuset cpu io memory hugetlb pids\n")
  return root
})

describe("spec 4.10: limits", () => {
  it("limits are written to the files of a cgroup", () => {
    assert.deepStrictEqual(
      limitFiles({ memory_limit: 512, swap: 64, cpu_limit: 150, io_weight: 500, threads: "0-1" }),
      [
        ["memory.max", String(512 * 1024 * 1024)],
        ["memory.swap.max", String(64 * 1024 * 1024)],
        ["cpu.max", "150000 100000"],
        ["cpuset.cpus", "0-1"],
        ["io.weight", "default 500"],
        ["pids.max", "16384"]
      ]
    )
    assert.deepStrictEqual(limitFiles({ memory_limit: 0, cpu_limit: 0, swap: -1, oom_disabled: true }), [
      ["memory.swap.max", "max"],
      ["pids.max", "16384"]
    ])
    assert.deepStrictEqual(limitFiles({ memory_limit: 1e-9 })[0], ["memory.max", "1048576"])
    assert.deepStrictEqual(limitFiles({ memory_limit: 1, oom_disabled: true })[0], ["memory.high", "1048576"])
  })

  it.live("limits are written before the process joins; an OOM kill is reported as such", () =>
    Effect.gen(function* () {
      const root = yield* standIn
      const { crashes, daemon, running } = yield* harness({ cgroupRoot: root })
      const id = yield* running({
        process: { invocation: "sh -c 'echo ready; read -r x; kill -KILL $$'" },
        definition: { limits: { memory_limit: 64, cpu_limit: 100 } }
      })
      const group = join(root, "muster", id)
      assert.strictEqual(readFileSync(join(group, "memory.max"), "utf8"), String(64 * 1024 * 1024))
      const joined = (of: string) => readFileSync(join(root, "muster", of, "cgroup.procs"), "utf8")
      assert.match(joined(id), /^\d+\n$/)
      // The relay has its own cgroup: it uses none of the server's memory, and is not killed with it.
      yield* until("the relay has joined its own", () => existsSync(join(root, "muster/relays/cgroup.procs")))
      assert.match(joined("relays"), /^\d+\n$/)
      assert.notStrictEqual(joined("relays"), joined(id))
      writeFileSync(join(group, "memory.events"), "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
      yield* daemon.commands(id, ["now"])
      yield* until("crash", () => crashes(id).length === 1)
      assert.deepInclude(crashes(id)[0], { reason: "out of memory", exit_code: 137 })
      assert.strictEqual(readFileSync(join(group, "cgroup.kill"), "utf8"), "1")
    }).pipe(Effect.scoped)
  )

  it.effect("a folder without the controllers is not used, and the reason names them", () =>
    Effect.gen(function* () {
      const root = yield* temporaryFolder
      writeFileSync(join(root, "cgroup.controllers"), "pids\n")
      const found = yield* openCgroups(root)
      assert.include(
        "reason" in found ? found.reason : "",
        "no cgroup v2 with the controllers cpu and memory"
      )
      assert.isFalse(existsSync(join(root, "muster")))
    }).pipe(Effect.scoped)
  )

  it.live("missing enforcement is logged once, with its consequence, if a server has limits", () =>
    Effect.gen(function* () {
      const cgroupRoot = yield* temporaryFolder
      const warning = `Warn memory and CPU limits of plain processes are not enforced: no cgroup v2 with the controllers cpu and memory at ${cgroupRoot}`
      const plain = { ...recorder(), log: [] as string[] }
      yield* openDaemon(yield* temporaryFolder, plain, { cgroupRoot })
      assert.deepStrictEqual(plain.log, [warning])

      const both = { ...recorder(), log: [] as string[] }
      const docker = { socket: join(cgroupRoot, "none.sock"), optional: true }
      const { daemon } = yield* openDaemon(yield* temporaryFolder, both, { cgroupRoot, docker })
      const start = Effect.fnUntraced(function* (memory_limit: number) {
        const spec = specOf({ definition: { limits: { memory_limit } } })
        yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(spec.id)))
        yield* daemon.create(spec)
        const of = (wanted: string) => () =>
          both.reports.some(
            (report) => report.server_id === spec.id && report.type === "status" && report.status === wanted
          )
        yield* until("installed", of("offline"))
        yield* daemon.power(spec.id, "start", 30)
        yield* until("it runs", of("running"))
      })
      yield* start(0)
      assert.deepStrictEqual(both.log, [], "containers, or nothing to hold it to")
      yield* start(64)
      yield* start(64)
      assert.deepStrictEqual(
        both.log.map((line) => line.replace(/ server_id=\S+$/, "")),
        [warning]
      )
    }).pipe(Effect.scoped)
  )

  it.effect("a limit that cannot be written refuses the start", () =>
    Effect.gen(function* () {
      const root = yield* standIn
      const found = yield* openCgroups(root)
      if ("reason" in found) return assert.fail(found.reason)
      mkdirSync(join(root, "muster", "a", "memory.max"), { recursive: true })
      const error = yield* Effect.flip(found.cgroups.prepare("a", { memory_limit: 64 }))
      assert.include(error.message, "memory.max")
    }).pipe(Effect.scoped)
  )
})

import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../src/contract/domain/Id.ts"
import { hostInfo } from "../../src/daemon/host/hostInfo.ts"
import { parseStat } from "../../src/daemon/host/procfs.ts"
import { eventually } from "../support/eventually.ts"
import { harness } from "./support.ts"

describe("spec 3.7: stats", () => {
  it.live("stats are from the kernel: memory of all processes, CPU share, disk", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, running } = yield* harness()
      const id = yield* running({
        process: { invocation: `sh -c 'echo ready; node -e "for(;;);" & wait'` },
        definition: { limits: { memory_limit: 512, cpu_limit: 200, disk_space: 10 } }
      })
      writeFileSync(join(dataDir, "servers", id, "files", "blob"), Buffer.alloc(100_000))
      const busy = daemon.stats(id, { update_disk_usage: false })
      const stats = yield* Effect.repeat(busy, {
        until: (now) => (now.cpu_absolute ?? 0) > 10 && (now.memory_bytes ?? 0) > 20_000_000,
        times: 100
      })
      assert.deepInclude(stats, {
        memory_limit_bytes: 512 * 1024 * 1024,
        cpu_absolute_limit: 200,
        disk_max: 10_000_000,
        state: "running",
        // The process shares the network of the host, so that its traffic is not known.
        network: { rx_bytes: null, tx_bytes: null }
      })
      assert.isBelow(stats.cpu_absolute ?? Number.NaN, 400)
      assert.isAbove(stats.memory_bytes ?? 0, 20_000_000)
      const measured = yield* daemon.stats(id, { update_disk_usage: true })
      assert.isAtLeast(measured.disk_bytes ?? 0, 100_000)
      yield* daemon.power(id, "kill", 0)
      const off = yield* Effect.repeat(daemon.stats(id, { update_disk_usage: false }), {
        until: (now) => now.state === "offline"
      })
      assert.deepInclude(off, { memory_bytes: 0, cpu_absolute: 0, uptime: 0 })
    }).pipe(Effect.scoped)
  )

  it.live(
    "several servers are measured at once, their disks in the background; a server that is not here has null",
    () =>
      Effect.gen(function* () {
        const { daemon, running } = yield* harness()
        const id = yield* running({ process: { invocation: "sh -c 'echo ready; sleep 1000'" } })
        const other = ServerId.make("nothere00000")
        const first = yield* daemon.statsOfMany([id, other, id])
        assert.deepStrictEqual(Object.keys(first), [id, other])
        assert.isNull(first[other])
        assert.strictEqual(first[id]?.state, "running")
        yield* eventually(daemon.statsOfMany([id]), (found) => (found[id]?.disk_bytes ?? 0) > 0)
      }).pipe(Effect.scoped)
  )

  it("command names with blanks and brackets are parsed", () => {
    const fields = Array.from({ length: 49 }, (_, i) => String(i + 4)).join(" ")
    const proc = parseStat(`42 (a) b (c) S ${fields}`)
    assert.deepInclude(proc, {
      pid: 42,
      state: "S",
      ppid: 4,
      pgrp: 5,
      session: 6,
      start: "22",
      ticks: 14 + 15 + 16 + 17
    })
  })
})

describe("spec 1.1: host", () => {
  it("architectures have the names of Go", () => {
    const host = hostInfo()
    assert.include(["amd64", "arm64"], host.architecture)
    assert.isAbove(host.memory_bytes, 0)
    assert.isAtLeast(host.cpu_threads, 1)
    assert.notStrictEqual(host.os, "")
  })
})

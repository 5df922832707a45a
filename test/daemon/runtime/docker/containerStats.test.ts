import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { figuresOf } from "../../../../src/daemon/runtime/docker/containers.ts"

const idle = {
  read: "2026-01-02T03:04:05.000000001Z",
  memory_stats: { usage: 5000, stats: { inactive_file: 1000 } },
  cpu_stats: { cpu_usage: { total_usage: 100e6 } }
}
const networks = { eth0: { rx_bytes: 10, tx_bytes: 20 }, eth1: { rx_bytes: 1, tx_bytes: 2 } }

describe("Docker runtime: stats of a container", () => {
  it("memory excludes the page cache, in cgroup v1 and v2; networks are summed", () => {
    const found = figuresOf({ ...idle, networks })
    assert.deepStrictEqual(found, {
      memory_bytes: 4000,
      cpu_ms: 100,
      network: { rx_bytes: 11, tx_bytes: 22 }
    })
    const old = { memory_stats: { usage: 5000, stats: { total_inactive_file: 2000, inactive_file: 1 } } }
    assert.strictEqual(figuresOf({ ...idle, ...old })?.memory_bytes, 3000)
    assert.deepStrictEqual(figuresOf(idle)?.network, { rx_bytes: 0, tx_bytes: 0 })
  })

  it("any other response is no sample, such as the empty one of a stop", () => {
    const stopped = {
      read: "0001-01-01T00:00:00Z",
      memory_stats: {},
      cpu_stats: { cpu_usage: { total_usage: 0 } }
    }
    assert.isUndefined(figuresOf(stopped))
    fc.assert(fc.property(fc.anything(), (value) => figuresOf(value) === undefined))
  })
})

import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { parseSample } from "../../../../src/daemon/runtime/docker/containerStats.ts"

const line = (at: string, cpu_ms: number, more: object = {}) =>
  JSON.stringify({
    read: at,
    memory_stats: { usage: 5000, stats: { inactive_file: 1000 } },
    cpu_stats: { cpu_usage: { total_usage: cpu_ms * 1e6 } },
    networks: { eth0: { rx_bytes: 10, tx_bytes: 20 }, eth1: { rx_bytes: 1, tx_bytes: 2 } },
    ...more
  })

describe("Docker runtime: stats of a container", () => {
  it("the CPU share is processor time between two samples, by the engine's clock", () => {
    const first = parseSample(line("2026-01-02T03:04:05.000000001Z", 100), undefined)
    assert.isUndefined(first?.cpu_percent)
    const second = parseSample(line("2026-01-02T03:04:06.000000001Z", 1600), first)
    assert.strictEqual(second?.cpu_percent, 150)
    // A repeated sample changes nothing.
    assert.strictEqual(parseSample(line("2026-01-02T03:04:06.000000001Z", 1600), second)?.cpu_percent, 150)
  })

  it("memory excludes the page cache, in cgroup v1 and v2; networks are summed", () => {
    const found = parseSample(line("2026-01-02T03:04:05Z", 1), undefined)
    assert.strictEqual(found?.memory_bytes, 4000)
    assert.deepStrictEqual(found?.network, { rx_bytes: 11, tx_bytes: 22 })
    const old = { memory_stats: { usage: 5000, stats: { total_inactive_file: 2000, inactive_file: 1 } } }
    assert.strictEqual(parseSample(line("2026-01-02T03:04:05Z", 1, old), undefined)?.memory_bytes, 3000)
    const none = parseSample(line("2026-01-02T03:04:05Z", 1, { networks: undefined }), undefined)
    assert.deepStrictEqual(none?.network, { rx_bytes: 0, tx_bytes: 0 })
  })

  it("any other text is no sample: the empty one of a stop, a part of a line", () => {
    const stopped = {
      read: "0001-01-01T00:00:00Z",
      memory_stats: {},
      cpu_stats: { cpu_usage: { total_usage: 0 } }
    }
    assert.isUndefined(parseSample(JSON.stringify(stopped), undefined))
    fc.assert(fc.property(fc.string(), (text) => parseSample(text, undefined) === undefined))
    fc.assert(
      fc.property(fc.nat({ max: 200 }), (length) => {
        const text = line("2026-01-02T03:04:05Z", 1)
        assert.isUndefined(parseSample(text.slice(0, Math.min(length, text.length - 1)), undefined))
      })
    )
  })
})

import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { Allocations } from "../../../../src/contract/domain/Allocation.ts"
import { PortAllocator } from "../../../../src/controlPlane/nodes/fleet/PortAllocator.ts"
import { allocation } from "../../../support/samples.ts"

const ip = "127.0.0.1"
const offering = (ports: string, address = ip) => {
  const allocator = new PortAllocator()
  allocator.offer([allocation({ ports, address })])
  return allocator
}
const portsOf = (allocations: Allocations | undefined) => Object.values(allocations?.mappings ?? {}).flat()

describe("spec 2.5: the ports of a node", () => {
  it("the lowest ports are reserved first, with the options of their address", () => {
    const allocator = new PortAllocator()
    allocator.offer([
      allocation({ ports: "30000,25565-25566", alias: "play.example", force_outgoing_ip: true })
    ])
    assert.deepStrictEqual(allocator.reserve(2), {
      force_outgoing_ip: true,
      default: { ip, port: 25565 },
      alias: "play.example",
      mappings: { [ip]: [25565, 25566] }
    })
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [30000])
    assert.isUndefined(allocator.reserve(1))
  })

  it("a released port is not reserved again while other ports are free", () => {
    const allocator = offering("1000-1002")
    const first = allocator.reserve(1)
    assert.deepStrictEqual(portsOf(first), [1000])
    allocator.release(first?.mappings ?? {})
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [1001])
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [1002])
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [1000])
  })

  it("the default port is the first reserved, also after the allocator wraps around", () => {
    const allocator = offering("1000-1003")
    const first = allocator.reserve(3)
    allocator.release(first?.mappings ?? {})
    const second = allocator.reserve(2)
    assert.deepStrictEqual(portsOf(second), [1003, 1000])
    assert.strictEqual(second?.default.port, 1003)
  })

  it("a server gets all its ports on one address", () => {
    const allocator = new PortAllocator()
    allocator.offer([
      allocation({ ports: "1000-1001" }),
      allocation({ address: "10.0.0.1", ports: "1000-1002" })
    ])
    assert.strictEqual(allocator.free, 5)
    assert.strictEqual(allocator.mostOnOneAddress, 3)
    assert.deepStrictEqual(allocator.reserve(3)?.mappings, { "10.0.0.1": [1000, 1001, 1002] })
    assert.isUndefined(allocator.reserve(3))
    assert.deepStrictEqual(allocator.reserve(2)?.mappings, { [ip]: [1000, 1001] })
  })

  it("held ports stay held when the node registers with other ranges", () => {
    const allocator = offering("1000-1001")
    const held = allocator.reserve(2)
    allocator.offer([allocation({ ports: "1001-1002" })])
    assert.strictEqual(allocator.free, 1)
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [1002])
    allocator.release(held?.mappings ?? {})
    assert.strictEqual(allocator.free, 1, "1000 is not offered any more")
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [1001])
  })

  it("ports outside the ranges can be held, and are offered once they are free and in range", () => {
    const allocator = offering("1000")
    allocator.hold({ [ip]: [2000], "10.9.9.9": [1000] })
    assert.strictEqual(allocator.free, 1)
    allocator.offer([allocation({ ports: "2000" })])
    assert.isUndefined(allocator.reserve(1))
    allocator.release({ [ip]: [2000] })
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [2000])
  })

  it("a port that two servers hold is free only after both release it", () => {
    const allocator = offering("1000")
    allocator.hold({ [ip]: [1000] })
    allocator.hold({ [ip]: [1000] })
    allocator.release({ [ip]: [1000] })
    assert.isUndefined(allocator.reserve(1))
    allocator.release({ [ip]: [1000] })
    assert.strictEqual(allocator.free, 1)
  })

  it("a port of two servers stays theirs when the node offers it, or offers it no more", () => {
    const allocator = offering("1000")
    for (const ports of ["1000", "2000", "1000"]) {
      allocator.offer([allocation({ ports })])
      if (ports === "1000") allocator.hold({ [ip]: [1000] })
    }
    allocator.release({ [ip]: [1000] })
    assert.isUndefined(allocator.reserve(1))
    allocator.offer([allocation({ ports: "2000" })])
    allocator.release({ [ip]: [1000] })
    allocator.offer([allocation({ ports: "1000" })])
    assert.deepStrictEqual(portsOf(allocator.reserve(1)), [1000])
  })

  it("no port is reserved twice, and the number of free ports is exact", () => {
    const ranges = fc.constantFrom("1000-1009", "1005-1014", "1000,1003-1006,2000-2040", "3000-3099")
    const step = fc.oneof(
      fc.record({ kind: fc.constant("reserve" as const), count: fc.integer({ min: 1, max: 16 }) }),
      fc.record({ kind: fc.constant("release" as const), which: fc.nat() }),
      fc.record({ kind: fc.constant("offer" as const), ports: ranges })
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const allocator = offering("1000-1009")
        let offered = "1000-1009"
        let held: Array<Allocations> = []
        for (const one of steps) {
          if (one.kind === "reserve") {
            const before = allocator.mostOnOneAddress
            const allocations = allocator.reserve(one.count)
            assert.strictEqual(allocations !== undefined, before >= one.count)
            if (allocations !== undefined) {
              assert.strictEqual(portsOf(allocations).length, one.count)
              held.push(allocations)
            }
          } else if (one.kind === "release") {
            const back = held[one.which % Math.max(1, held.length)]
            allocator.release(back?.mappings ?? {})
            held = held.filter((other) => other !== back)
          } else {
            offered = one.ports
            allocator.offer([allocation({ ports: offered })])
          }
          const ports = held.flatMap(portsOf)
          assert.strictEqual(new Set(ports).size, ports.length)
          const taken = new Set(ports)
          const free = offered
            .split(",")
            .flatMap((range) => {
              const [first = 0, last = first] = range.split("-").map(Number)
              return Array.from({ length: last - first + 1 }, (_, i) => first + i)
            })
            .filter((port) => !taken.has(port))
          assert.strictEqual(allocator.free, free.length)
        }
      })
    )
  })
})

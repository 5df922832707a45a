import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import type { Registration } from "../../../src/contract/domain/NodeMessages.ts"
import { registered, sharedPorts } from "../../../src/controlPlane/nodes/registration.ts"
import type { Plain } from "../../support/ids.ts"
import { allocation, registration } from "../../support/samples.ts"

const refusal = (fields: Partial<Plain<Registration>>) => {
  const result = registered(registration("n1", fields))
  return Result.isFailure(result) ? result.failure.detail : undefined
}
const capacity = registration("n1").capacity

describe("spec 9.2: validation", () => {
  it.each<readonly [string, Partial<Plain<Registration>>]>([
    ["id: ", { id: "" }],
    ["id: ", { id: ".." }],
    ["id: ", { id: "a/b" }],
    ["id: ", { id: "a b" }],
    ["id: ", { id: "x".repeat(129) }],
    ["name: ", { name: "" }],
    ["name: ", { name: "a\nb" }],
    ["location: ", { location: "\u001b[31m" }],
    ["url: ", { url: "x".repeat(3000) }],
    ["boot_id: ", { boot_id: "" }],
    ["capacity.memory_bytes: ", { capacity: { ...capacity, memory_bytes: -1 } }],
    ["capacity.cpu_threads: ", { capacity: { ...capacity, cpu_threads: Number.NaN } }],
    ["allocations: ", { allocations: Array.from({ length: 300 }, () => allocation()) }],
    ["allocations[0].address: ", { allocations: [allocation({ address: "__proto__" })] }],
    ["allocations[0].address: ", { allocations: [allocation({ address: "fe80::1%eth0" })] }],
    ["allocations[0].ports: ", { allocations: [allocation({ ports: "" })] }],
    ["allocations[0].ports: ", { allocations: [allocation({ ports: "25565-70000" })] }],
    ["allocations[0].ports: ", { allocations: [allocation({ ports: "20-10" })] }],
    ["allocations[0].alias: ", { allocations: [allocation({ alias: "a\u0000" })] }],
    ["allocations[1].address: ", { allocations: [allocation(), allocation({ ports: "1" })] }],
    [
      "allocations[1].address: ",
      { allocations: [allocation({ address: "::1" }), allocation({ address: "0:0:0:0:0:0:0:1" })] }
    ],
    [
      "allocations[1].ports: ",
      { allocations: [allocation({ address: "0.0.0.0" }), allocation({ ports: "25570" })] }
    ],
    [
      "allocations[1].ports: ",
      { allocations: [allocation({ ports: "25570" }), allocation({ address: "::" })] }
    ]
  ])("%s%j", (field, fields) => {
    assert.isTrue(refusal(fields)?.startsWith(field), refusal(fields))
  })

  it("a refusal contains the expected and the actual value", () => {
    assert.strictEqual(
      refusal({ allocations: [allocation({ ports: "all" })] }),
      'allocations[0].ports: expected ports such as 25565-25700 or 25565,25570-25580, got "all"'
    )
  })

  it("port ranges are independent for each address, and each address has one spelling", () => {
    const result = registered(
      registration("n1", {
        allocations: [
          allocation({ address: "0.0.0.0", ports: "1-10" }),
          allocation({ address: "10.0.0.1", ports: "11-20" }),
          allocation({ address: "2001:DB8:0:0::1", ports: "1-10" })
        ]
      })
    )
    assert.deepStrictEqual(
      Result.map(result, ({ allocations }) => allocations.map(({ address }) => address)),
      Result.succeed(["0.0.0.0", "10.0.0.1", "2001:db8::1"])
    )
  })

  it("a heartbeat interval that is not below the lost timeout is refused with the settings to change", () => {
    const withInterval = (heartbeat_seconds: number, timeout: number) =>
      registered(registration("n1", { heartbeat_seconds }), timeout)
    assert.isTrue(Result.isSuccess(withInterval(10, 30)))
    assert.isTrue(Result.isSuccess(withInterval(29, 30)))
    assert.isTrue(Result.isSuccess(registered(registration("n1"), 1)), "a daemon that does not say")
    for (const [seconds, timeout, better] of [
      [30, 30, 10],
      [600, 30, 10],
      [2, 1, 1]
    ] as const) {
      const result = withInterval(seconds, timeout)
      if (Result.isSuccess(result)) assert.fail(`${seconds} of ${timeout}`)
      assert.strictEqual(
        result.failure.detail,
        `MUSTER_NODE_HEARTBEAT is ${seconds} s, and a node is lost here after ${timeout} s without one`
      )
      assert.include(result.failure.hint, `Set MUSTER_NODE_HEARTBEAT to ${better} and`)
    }
  })

  it("any text is accepted or refused with a short message; an accepted registration is accepted again", () => {
    const anyCodeUnit = fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code))
    const text = fc.oneof(
      { weight: 9, arbitrary: fc.constantFrom("n1", "a-b", "constructor") },
      { weight: 1, arbitrary: fc.string({ unit: anyCodeUnit }) }
    )
    const allocations = fc.array(
      fc.record({
        address: fc.oneof(
          { weight: 9, arbitrary: fc.oneof(fc.ipV4(), fc.ipV6(), fc.constantFrom("::", "0.0.0.0", "::1")) },
          { weight: 1, arbitrary: text }
        ),
        alias: text,
        force_outgoing_ip: fc.boolean(),
        ports: fc.oneof(
          { weight: 9, arbitrary: fc.constantFrom("1-9", "5, 7-8", "65535") },
          { weight: 1, arbitrary: text }
        )
      }),
      { maxLength: 4 }
    )
    let accepted = 0
    fc.assert(
      fc.property(fc.record({ id: text, name: text, url: text, boot_id: text, allocations }), (fields) => {
        const result = registered(registration("n1", fields))
        if (Result.isFailure(result)) {
          assert.isAbove(result.failure.detail.length, 0)
          assert.isBelow(result.failure.detail.length, 300)
        } else {
          accepted += 1
          assert.deepStrictEqual(registered(registration("n1", { ...fields, ...result.success })), result)
        }
      })
    )
    assert.isAbove(accepted, 0)
  })
})

describe("spec 2.5: no two servers hold the same port of the same address", () => {
  const node = (id: string, address: string, ports: string) => ({
    id: NodeId.make(id),
    allocations: [allocation({ address, ports })]
  })

  it("two nodes that offer the same ports of an address are reported", () => {
    const one = node("one", "10.0.0.7", "25565-25600")
    assert.deepStrictEqual(sharedPorts(one, [node("other", "10.0.0.7", "25600-25700")]), [
      "nodes one and other offer the same ports of 10.0.0.7: give each its own, unless they are in different networks"
    ])
  })

  it.each([
    ["other ports", node("other", "10.0.0.7", "25601-25700")],
    ["another address", node("other", "10.0.0.8", "25565-25600")],
    ["the same node, registered before", node("one", "10.0.0.7", "25565-25600")]
  ])("no report: %s", (_, other) => {
    assert.deepStrictEqual(sharedPorts(node("one", "10.0.0.7", "25565-25600"), [other]), [])
  })

  it("no report: loopback addresses", () => {
    assert.deepStrictEqual(
      sharedPorts(node("one", "127.0.0.1", "25565"), [node("other", "127.0.0.1", "25565")]),
      []
    )
  })
})

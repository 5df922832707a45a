import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import fc from "fast-check"
import { NodeId, ServerId, serverId } from "../../../src/contract/domain/Id.ts"
import type { InstallState } from "../../../src/contract/domain/InstallState.ts"
import type { Change, PublicChange } from "../../../src/contract/domain/Journal.ts"
import { cleanText } from "../../../src/contract/domain/NodeText.ts"
import type { Server } from "../../../src/contract/domain/Server.ts"
import { ServerEvent } from "../../../src/contract/domain/ServerEvent.ts"
import { ServerStatus } from "../../../src/contract/domain/ServerStatus.ts"
import { encode, MAX_EVENT_BYTES } from "../../../src/controlPlane/events/encode.ts"

const encoded = (change: Change, cursor = 7, server: Server | null = null) => {
  const event = encode({ cursor, at: 1_767_323_045_678, blueprint_id: "bp", change }, server)
  if (event === undefined) return assert.fail("not public")
  return event
}
const text = (bytes: Uint8Array) => new TextDecoder("utf-8", { fatal: true }).decode(bytes)

describe("spec 5.1: message shape", () => {
  it("status", () => {
    const event = encoded({ topic: "status", server_id: ServerId.make("srv_1"), payload: "offline" })
    const json = '{"Topic":"status","Data":{"server_id":"srv_1","payload":"offline"}}'
    assert.strictEqual(event.text, json)
    assert.strictEqual(text(event.sse), `event: status\ndata: ${json}\n\n`)
    assert.strictEqual(event.topic, "status")
    assert.strictEqual(event.server_id, "srv_1")
    assert.strictEqual(event.blueprint_id, "bp")
  })

  it("crash: the payload has the field order of the contract", () => {
    const event = encoded({
      topic: "crash",
      server_id: ServerId.make("srv_1"),
      payload: { timestamp: "2026-01-02T03:04:05.678Z", exit_code: 137, reason: "signal: killed" }
    })
    assert.strictEqual(
      event.text,
      '{"Topic":"crash","Data":{"server_id":"srv_1","payload":{"reason":"signal: killed","exit_code":137,"timestamp":"2026-01-02T03:04:05.678Z"}}}'
    )
  })

  it("deleted: the payload is null", () => {
    const event = encoded({ topic: "deleted", server_id: ServerId.make("srv_1"), payload: null })
    assert.strictEqual(event.text, '{"Topic":"deleted","Data":{"server_id":"srv_1","payload":null}}')
  })

  it("operation: the payload is the operation, without the key that began it", () => {
    const operation = {
      id: "o1",
      kind: "files.pack",
      server_id: ServerId.make("srv_1"),
      state: "failed",
      reason: "no room",
      created_at: "2026-01-02T03:04:05.678Z",
      finished_at: "2026-01-02T03:04:06.678Z"
    } as const
    const event = encoded({
      topic: "server:operation",
      server_id: operation.server_id,
      payload: { operation, created_by: "k1" }
    })
    const payload = JSON.stringify(operation)
    assert.strictEqual(event.text, `{"Topic":"operation","Data":{"server_id":"srv_1","payload":${payload}}}`)
  })

  it("an internal change is not encoded as an event", () => {
    for (const change of [
      { topic: "server:created", server_id: ServerId.make("s"), payload: null },
      { topic: "server:start-pending", server_id: ServerId.make("s"), payload: true },
      { topic: "key:changed" },
      { topic: "definitions:reloaded", folder: "software", origin: "o" },
      { topic: "unknown:change" }
    ] satisfies ReadonlyArray<Change>) {
      assert.isUndefined(encode({ cursor: 1, at: 0, blueprint_id: "bp", change }))
    }
  })
})

describe("spec 5.5: resume", () => {
  it("a resumed stream has an id line on SSE and a third key Cursor on WebSocket", () => {
    const event = encoded({ topic: "deleted", server_id: ServerId.make("srv_1"), payload: null }, 42)
    assert.strictEqual(
      text(event.sseWithId),
      'id: 42\nevent: deleted\ndata: {"Topic":"deleted","Data":{"server_id":"srv_1","payload":null}}\n\n'
    )
    assert.strictEqual(
      event.textWithCursor,
      '{"Topic":"deleted","Data":{"server_id":"srv_1","payload":null},"Cursor":42}'
    )
  })
})

describe("spec 5.5: include and opt-in topics", () => {
  const summary: Server = {
    id: ServerId.make("srv_1"),
    blueprint_id: "bp",
    node_name: "Node",
    node_id: NodeId.make("n1"),
    allocations: {
      force_outgoing_ip: false,
      default: { ip: "10.0.0.1", port: 1 },
      alias: "",
      mappings: { "10.0.0.1": [1] }
    }
  }
  const offline = { topic: "status", server_id: ServerId.make("srv_1"), payload: "offline" } as const

  it("server and time follow the fields of the contract; Cursor stays last; the SSE id stays first", () => {
    const event = encoded(offline, 7, summary)
    const data = '"server_id":"srv_1","payload":"offline"'
    const server = `"server":${JSON.stringify(summary)}`
    const time = '"time":"2026-01-02T03:04:05.678Z"'
    for (const [include, added] of [
      [["server"], `,${server}`],
      [["time"], `,${time}`],
      [["server", "time"], `,${server},${time}`],
      [["time", "server"], `,${server},${time}`],
      [[], ""]
    ] as const) {
      const variant = event.including(new Set(include))
      assert.strictEqual(variant.text, `{"Topic":"status","Data":{${data}${added}}}`)
      assert.strictEqual(variant.textWithCursor, `{"Topic":"status","Data":{${data}${added}},"Cursor":7}`)
      assert.strictEqual(text(variant.sseWithId), `id: 7\nevent: status\ndata: ${variant.text}\n\n`)
      Schema.decodeUnknownSync(ServerEvent)(JSON.parse(variant.textWithCursor))
    }
  })

  it("a server that is not known is null", () => {
    const event = encoded({ topic: "deleted", server_id: ServerId.make("srv_1"), payload: null })
    assert.strictEqual(
      event.including(new Set(["server"])).text,
      '{"Topic":"deleted","Data":{"server_id":"srv_1","payload":null,"server":null}}'
    )
  })

  it("each variant is encoded once and leaves the plain form as it was", () => {
    const event = encoded(offline, 7, summary)
    const plain = event.text
    const one = event.including(new Set(["server", "time"]))
    assert.strictEqual(event.including(new Set(["time", "server"])), one)
    assert.strictEqual(one.sseWithId, one.sseWithId)
    assert.strictEqual(event.including(new Set()), event)
    assert.strictEqual(event.text, plain)
  })

  it("install has the step in progress, the one that failed, or a start that is complete", () => {
    const [started_at, finished_at] = ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z"]
    const done = { name: "commit", started_at, finished_at } as const
    const payloadOf = (payload: InstallState) =>
      JSON.parse(encoded({ topic: "server:install", server_id: ServerId.make("srv_1"), payload }).text).Data
        .payload
    assert.deepStrictEqual(payloadOf({ phase: "pending", steps: [done] }), { phase: "pending" })
    assert.deepStrictEqual(payloadOf({ phase: "installing", steps: [done, { name: "pull", started_at }] }), {
      phase: "installing",
      step: "pull"
    })
    assert.deepStrictEqual(
      payloadOf({
        phase: "failed",
        failure_reason: "exit code 1",
        steps: [done, { name: "script", started_at, finished_at }]
      }),
      { phase: "failed", step: "script", reason: "exit code 1" }
    )
    assert.deepStrictEqual(payloadOf({ phase: "ready", steps: [{ name: "start", started_at }] }), {
      phase: "ready",
      step: "start"
    })
    assert.deepStrictEqual(
      payloadOf({ phase: "ready", steps: [{ name: "start", started_at, finished_at }] }),
      {
        phase: "ready",
        step: "start",
        progress: 1
      }
    )
  })

  it("install is an opt-in topic with the phase and, after a failure, the reason", () => {
    const event = encoded({
      topic: "server:install",
      server_id: ServerId.make("srv_1"),
      payload: { phase: "failed", failure_reason: "exit\tcode 1", exit_code: 1 }
    })
    assert.strictEqual(
      event.text,
      '{"Topic":"install","Data":{"server_id":"srv_1","payload":{"phase":"failed","reason":"exit code 1"}}}'
    )
    assert.isTrue(event.isOptIn)
    assert.isFalse(encoded(offline).isOptIn)
    Schema.decodeUnknownSync(ServerEvent)(JSON.parse(event.text))
  })
})

const cleaned = (payload: unknown) => {
  if (typeof payload !== "object" || payload === null) return payload
  return Object.fromEntries(
    Object.entries(payload).map(([name, value]) => [
      name,
      typeof value === "string" ? cleanText(value) : value
    ])
  )
}

describe("encode: arbitrary content", () => {
  const change: fc.Arbitrary<PublicChange> = fc.oneof(
    fc.record({
      topic: fc.constant("status" as const),
      server_id: fc.string({ unit: "binary" }).map((id) => ServerId.make(id)),
      payload: fc.constantFrom(...ServerStatus.literals)
    }),
    fc.record({
      topic: fc.constant("crash" as const),
      server_id: fc.string().map((id) => ServerId.make(id)),
      payload: fc.record({
        reason: fc.string({ unit: "binary" }),
        exit_code: fc.integer(),
        timestamp: fc.string()
      })
    })
  )

  it("an event is one data line, identical on both transports, and decodes to its source", () => {
    fc.assert(
      fc.property(change, fc.nat(), (change, cursor) => {
        const event = encoded(change, cursor)
        const [first, data, ...rest] = text(event.sse).split(/\r\n|\r|\n/)
        assert.strictEqual(first, `event: ${change.topic}`)
        assert.strictEqual(data, `data: ${event.text}`)
        assert.deepStrictEqual(rest, ["", ""])
        assert.strictEqual(text(event.sseWithId), `id: ${cursor}\n${text(event.sse)}`)
        assert.deepStrictEqual<unknown>(
          Schema.decodeUnknownSync(ServerEvent)(JSON.parse(event.textWithCursor)),
          {
            Topic: change.topic,
            Data: { server_id: change.server_id, payload: cleaned(change.payload) },
            Cursor: cursor
          }
        )
      })
    )
  })

  it("no encoded event exceeds 64 KiB or contains a control character, whatever is in the journal", () => {
    const hostile = fc.oneof(
      fc.string({ unit: "binary", maxLength: 3000 }),
      fc
        .constantFrom("\u0000", '"', "\\", "\u2028", "\u202e", "\ud800", "\u{1f480}", "\u{e0041}")
        .chain((part) => fc.integer({ min: 1, max: 300_000 }).map((times) => part.repeat(times)))
    )
    const id = serverId(new Uint8Array(16))
    const crash = fc.record({ reason: hostile, exit_code: fc.integer(), timestamp: hostile })
    fc.assert(
      fc.property(crash, fc.maxSafeNat(), (payload, cursor) => {
        const event = encoded({ topic: "crash", server_id: id, payload }, cursor)
        for (const bytes of [event.sse, event.sseWithId]) {
          assert.isAtMost(bytes.length, MAX_EVENT_BYTES)
        }
        const { Data } = JSON.parse(event.textWithCursor)
        assert.strictEqual(Data.server_id, id)
        for (const field of [Data.payload.reason, Data.payload.timestamp]) {
          assert.isAtMost(field.length, 1024)
          assert.notMatch(field, /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u)
        }
      }),
      { numRuns: 50 }
    )
  })
})

import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import {
  type Frame,
  frameReader,
  logCursor,
  logEntry,
  terminalReader,
  withoutReturns
} from "../../../../src/daemon/runtime/docker/logFrames.ts"

const frame = (text: string, stream = 1) => {
  const payload = Buffer.from(text)
  const header = Buffer.alloc(8)
  header[0] = stream
  header.writeUInt32BE(payload.length, 4)
  return Buffer.concat([header, payload])
}

const time = (second: number, nanos = 0) =>
  `${new Date(second * 1000).toISOString().slice(0, 19)}.${String(nanos).padStart(9, "0")}Z`

describe("Docker runtime: the engine's log", () => {
  it("the frames do not depend on how the bytes arrive", () => {
    const texts = fc.array(fc.string({ maxLength: 40 }), { maxLength: 20 })
    fc.assert(
      fc.property(texts, fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 40 }), (given, cuts) => {
        const data = Buffer.concat(given.map((text, index) => frame(text, 1 + (index % 2))))
        const read = frameReader()
        const got: Array<string> = []
        let at = 0
        for (const size of [...cuts, data.length]) {
          for (const { payload, stream } of read(data.subarray(at, at + size))) {
            assert.strictEqual(stream, 1 + (got.length % 2))
            got.push(payload.toString())
          }
          at += size
        }
        assert.deepStrictEqual(got, given)
      })
    )
  })

  it("the entries of a terminal are lines and parts of long lines, however the bytes arrive", () => {
    const part = fc.integer({ min: 1, max: 3 }).map((count) => "x".repeat(16_384 * count + 5))
    const texts = fc.array(fc.oneof(fc.stringMatching(/^[a-z ]{0,40}$/), part), { maxLength: 8 })
    fc.assert(
      fc.property(texts, fc.array(fc.integer({ min: 1, max: 9000 }), { maxLength: 20 }), (given, cuts) => {
        const parts = given.flatMap((text) => `${text}\r\n`.match(/[^\n]{16384}|[^\n]*\n/g) ?? [])
        const data = Buffer.from([...parts, "> "].map((text) => `${time(1_700_000_000)} ${text}`).join(""))
        const { end, read } = terminalReader()
        const got: Array<Frame> = []
        let at = 0
        for (const size of [...cuts, data.length]) {
          got.push(...read(data.subarray(at, at + size)))
          at += size
        }
        const payloads = [...got, ...end()].map(({ payload }) => logEntry(payload).payload)
        assert.deepStrictEqual(payloads.map(String), [...parts, "> "])
        const lines = given.map((text) => `${text}\n`).join("")
        assert.strictEqual(payloads.map((payload) => withoutReturns(payload)).join(""), `${lines}> `)
      })
    )
  })

  it("the payload of an entry is its text after the time", () => {
    const entry = logEntry(Buffer.from(`${time(1_700_000_000, 5)} hello world\n`))
    assert.strictEqual(entry.at, 1_700_000_000_000)
    assert.strictEqual(entry.payload.toString(), "hello world\n")
    assert.strictEqual(logEntry(Buffer.from("no time here")).payload.toString(), "no time here")
  })

  it("an interrupted read continues with the next entry: none is lost or repeated", () => {
    // Times are out of order by up to a second, because there are two streams.
    const steps = fc.array(fc.record({ forward: fc.nat({ max: 2 }), late: fc.nat({ max: 1 }) }), {
      minLength: 1,
      maxLength: 40
    })
    fc.assert(
      fc.property(steps, fc.array(fc.nat({ max: 12 }), { maxLength: 10 }), (given, rounds) => {
        let now = 100
        const log = given.map(({ forward, late }, index) => {
          now += forward
          return { at: (now - late) * 1000, payload: Buffer.from(`${index};`) }
        })
        let place = { since: 0, count: 0, size: 0 }
        let text = ""
        for (const many of [...rounds, log.length]) {
          const cursor = logCursor(place)
          let taken = 0
          for (const entry of log.filter(({ at }) => at >= place.since * 1000)) {
            if (taken === many) break
            const payload = cursor.take(entry)
            if (payload === undefined) continue
            taken++
            text += payload.toString()
          }
          if (taken > 0) place = cursor.position(0)
        }
        assert.strictEqual(text, log.map((_, index) => `${index};`).join(""))
      })
    )
  })
})

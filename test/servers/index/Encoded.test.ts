import { gunzipSync } from "node:zlib"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { EncodedChunk, EncodedList } from "../../../src/servers/index/Encoded.ts"

const encoder = new TextEncoder()
const chunkOf = (...values: ReadonlyArray<unknown>) =>
  new EncodedChunk(values.map((value) => encoder.encode(JSON.stringify(value))))
const textOf = ({ body }: EncodedList) => new TextDecoder().decode(body.joined())
const long = "a server ".repeat(500)

describe("spec 3.6: an encoded list", () => {
  it("the list is a JSON array of the values of all chunks", () => {
    expect(textOf(new EncodedList([]))).toBe("[]")
    expect(textOf(new EncodedList([chunkOf(1)]))).toBe("[1]")
    expect(textOf(new EncodedList([chunkOf(1, "ä"), chunkOf({ a: 2 })]))).toBe('[1,"ä",{"a":2}]')
  })

  it("equal chunks have an equal ETag, and others another one", () => {
    const etag = (...values: ReadonlyArray<unknown>) => new EncodedList([chunkOf(0), chunkOf(...values)]).etag
    expect(etag(1, 2)).toBe(etag(1, 2))
    expect(new Set([etag(1, 2), etag(2, 1), etag(1), new EncodedList([]).etag]).size).toBe(4)
  })

  it.effect("gzip has the bytes of the list; a chunk that stays is not compressed again", () =>
    Effect.gen(function* () {
      const [kept, other] = [chunkOf(long, 1), chunkOf(long, 2)]
      for (const list of [new EncodedList([kept]), new EncodedList([kept, other])]) {
        const gzip = yield* list.gzip ?? Effect.die("not compressed")
        expect(gunzipSync(gzip.joined())).toEqual(Buffer.from(list.body.joined()))
        expect(gzip.length).toBeLessThan(list.body.length / 4)
        expect(yield* list.gzip ?? Effect.void).toBe(gzip)
      }
      const blocks = kept.deflated()
      yield* new EncodedList([kept, chunkOf(long, 3)]).gzip ?? Effect.void
      expect(kept.deflated()).toBe(blocks)
    })
  )

  it("a list of less than 1 KiB is not compressed", () => {
    expect(new EncodedList([chunkOf(1)]).gzip).toBeUndefined()
  })
})

import { createHash } from "node:crypto"
import { constants, crc32, deflateRaw } from "node:zlib"
import { Deferred, Effect } from "effect"
import { etagOf } from "../../api/conditional.ts"
import { SplitBody } from "../../api/SplitBody.ts"
import type { ServerStats } from "../../domain/Server.ts"

const [open, comma, close] = [0x5b, 0x2c, 0x5d]

/** A response body with its weak `ETag`, which is made on first use. */
export class Encoded {
  readonly body: string
  #etag: string | undefined

  constructor(body: string) {
    this.body = body
  }

  get etag(): string {
    this.#etag ??= etagOf(this.body)
    return this.#etag
  }
}

/** Adds a field to an encoded object that has others. */
const withField = (object: string, name: string, value: unknown): string =>
  `${object.slice(0, -1)},${JSON.stringify(name)}:${JSON.stringify(value)}}`

/** An encoded summary with figures. */
export const withStats = ({ body }: Pick<Encoded, "body">, stats: ServerStats | null): Encoded =>
  new Encoded(withField(body, "stats", stats))

/** Smallest list that is compressed, in bytes. */
const SMALLEST_COMPRESSED = 1024

/** A block of DEFLATE that is not compressed and has one byte (RFC 1951, section 3.2.4). */
const stored = (byte: number, isLast = false) => Uint8Array.of(isLast ? 1 : 0, 1, 0, 0xfe, 0xff, byte)
const [storedOpen, storedComma, storedClose] = [stored(open), stored(comma), stored(close, true)]
/** The header of a gzip member without a name and a time, made on an unknown system (RFC 1952, section 2.3). */
const gzipHeader = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)

/** Compresses to blocks that end at a byte and refer to no earlier one, on the threads of zlib. */
const deflated = (bytes: Uint8Array): Deferred.Deferred<Uint8Array> => {
  const done = Deferred.makeUnsafe<Uint8Array>()
  deflateRaw(bytes, { finishFlush: constants.Z_SYNC_FLUSH }, (error, blocks) =>
    Deferred.doneUnsafe(done, error === null ? Effect.succeed(blocks) : Effect.die(error))
  )
  return done
}

/** Joins encoded values, each after a comma. */
const afterCommas = (pieces: ReadonlyArray<Uint8Array>): Uint8Array => {
  const joined = new Uint8Array(pieces.reduce((sum, piece) => sum + 1 + piece.length, 0))
  let at = 0
  for (const piece of pieces) {
    joined[at] = comma
    joined.set(piece, at + 1)
    at += 1 + piece.length
  }
  return joined
}

/** The encoded values of a part of a list, each after a comma. */
export class EncodedChunk {
  readonly body: Uint8Array
  readonly digest: Uint8Array
  /** The end of each value in the body. */
  readonly #ends: Uint32Array
  #blocks: Deferred.Deferred<Uint8Array> | undefined

  /** @param pieces at least one encoded value */
  constructor(pieces: ReadonlyArray<Uint8Array>) {
    this.body = afterCommas(pieces)
    this.digest = createHash("sha1").update(this.body).digest()
    let end = 0
    this.#ends = Uint32Array.from(pieces, ({ length }) => {
      end += 1 + length
      return end
    })
  }

  /** Returns the encoded value number `at`. */
  piece(at: number): Uint8Array {
    return this.body.subarray(1 + (this.#ends[at - 1] ?? 0), this.#ends[at])
  }

  /** Returns the blocks of DEFLATE of the part without its first comma; the first call compresses it. */
  deflated(): Deferred.Deferred<Uint8Array> {
    this.#blocks ??= deflated(this.body.subarray(1))
    return this.#blocks
  }
}

/** Longest body that is one buffer: a copy of it costs less than the writing of several. */
const LONGEST_JOINED = 128 * 1024

const bodyOf = (parts: ReadonlyArray<Uint8Array>, isShared: boolean): SplitBody => {
  const body = new SplitBody(parts, isShared)
  return body.length > LONGEST_JOINED ? body : new SplitBody([body.joined()], isShared)
}

/** JSON array of the values of all chunks, whose bytes it shares, and the same in gzip. */
export class EncodedList {
  readonly body: SplitBody
  /** Weak; equal chunks have an equal tag. */
  readonly etag: string
  readonly #chunks: ReadonlyArray<EncodedChunk>
  readonly #isKept: boolean
  #gzip: SplitBody | undefined

  /**
   * @param isKept   whether the chunks stay in memory: what is compressed serves later lists
   * @param isShared whether other requests get the same list
   */
  constructor(chunks: ReadonlyArray<EncodedChunk>, isKept = true, isShared = true) {
    const [first, ...more] = chunks.map(({ body }) => body)
    this.body = bodyOf(
      [
        Uint8Array.of(open),
        ...(first === undefined ? [] : [first.subarray(1), ...more]),
        Uint8Array.of(close)
      ],
      isShared
    )
    this.etag = etagOf(Buffer.concat(chunks.map(({ digest }) => digest)))
    this.#chunks = chunks
    this.#isKept = isKept
  }

  /** The list in gzip, of which only new chunks are compressed; undefined: it is too small, or its chunks are not kept. */
  get gzip(): Effect.Effect<SplitBody> | undefined {
    if (this.body.length < SMALLEST_COMPRESSED || !this.#isKept) return undefined
    return Effect.suspend(() => {
      if (this.#gzip !== undefined) return Effect.succeed(this.#gzip)
      const chunks = this.#chunks.map((chunk) => chunk.deflated())
      return Effect.map(Effect.forEach(chunks, Deferred.await), (blocks) => {
        this.#gzip ??= this.#compressed(blocks)
        return this.#gzip
      })
    })
  }

  #compressed(chunks: ReadonlyArray<Uint8Array>): SplitBody {
    const trailer = Buffer.alloc(8)
    trailer.writeUInt32LE(
      this.body.parts.reduce((crc, part) => crc32(part, crc), 0),
      0
    )
    trailer.writeUInt32LE(this.body.length % 2 ** 32, 4)
    const values = chunks.flatMap((blocks, at) => (at === 0 ? [blocks] : [storedComma, blocks]))
    return bodyOf([gzipHeader, storedOpen, ...values, storedClose, trailer], true)
  }
}

/** Pieces of streams of bytes, and checks at their ends. */
import { createHash } from "node:crypto"
import { Effect, identity, Stream } from "effect"
import { IoError } from "../disk/fsio.ts"

export const differs = (key: string, why: string) =>
  new IoError({
    code: "DAMAGED",
    message: `${key} is damaged: ${why}`,
    next: "Verify the backup, which names a damaged part, and use another backup."
  })

/** Passes on a stream, and runs a check at its end. The last bytes wait for it: nobody takes a damaged stream for a whole one. */
export const endChecked = <E, E2>(
  stream: Stream.Stream<Uint8Array, E>,
  check: Effect.Effect<void, E2>
): Stream.Stream<Uint8Array, E | E2> =>
  Stream.suspend(() => {
    let last: Uint8Array | undefined
    const before = Stream.map(stream, (chunk) => {
      const held = last
      last = chunk
      return held
    })
    const rest = Effect.map(check, () => (last === undefined ? Stream.empty : Stream.make(last)))
    return Stream.concat(
      Stream.filter(before, (chunk) => chunk !== undefined),
      Stream.unwrap(rest)
    )
  })

/**
 * Passes on a stream, and fails before its last byte if its SHA-256 is another.
 * @param what the name of the bytes in the error
 * @param pass which of the bytes are passed on; default: all
 */
export const digestChecked = <E>(
  stream: Stream.Stream<Uint8Array, E>,
  what: string,
  sha256: string | undefined,
  pass: (whole: Stream.Stream<Uint8Array, E>) => Stream.Stream<Uint8Array, E> = identity
): Stream.Stream<Uint8Array, E | IoError> =>
  Stream.suspend(() => {
    const hash = createHash("sha256")
    const whole = Stream.tap(stream, (chunk) => Effect.sync(() => void hash.update(chunk)))
    const check = Effect.suspend(() =>
      hash.digest("hex") === sha256 ? Effect.void : Effect.fail(differs(what, "its SHA-256 is another"))
    )
    return endChecked(pass(whole), check)
  })

/** Returns the bytes of a stream from `start` to before `end`, and reads all others, too. */
export const between = <E>(
  stream: Stream.Stream<Uint8Array, E>,
  start: number,
  end: number
): Stream.Stream<Uint8Array, E> =>
  Stream.suspend(() => {
    let at = 0
    return Stream.filter(
      Stream.map(stream, (chunk) => {
        const piece = chunk.subarray(Math.max(0, start - at), Math.max(0, end - at))
        at += chunk.length
        return piece
      }),
      ({ length }) => length > 0
    )
  })

/** As {@link between}, and reads nothing after `end`. */
export const until = <E>(
  stream: Stream.Stream<Uint8Array, E>,
  start: number,
  end: number
): Stream.Stream<Uint8Array, E> =>
  Stream.suspend(() => {
    let at = 0
    const read = Stream.takeUntil(stream, ({ length }) => {
      at += length
      return at >= end
    })
    return between(read, start, end)
  })

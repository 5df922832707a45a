/** Bounds the memory of bodies that have not arrived completely (SECURITY.md, "Promises and their tests"). */
import { Effect, Stream } from "effect"
import type { HttpServerRequest } from "effect/http"
import { Unavailable } from "../../contract/domain/errors.ts"
import { bodyTooLarge } from "./responseHeaders.ts"

/** Bytes of a body that counts towards no bound: the number of connections bounds such bodies. */
const SMALL = 16 * 1024

/** Bytes of the larger bodies that one key may send at the same time; a single body may be larger. */
export const ARRIVING_BYTES = 32 * 1024 * 1024

const tooMany = new Unavailable({
  detail: "the API key sends too many large bodies at the same time",
  hint: "Send fewer large requests at the same time."
})

/** Returns the bytes that a body may have: the announced ones, or the limit if none are announced. */
export const announcedBytes = ({ headers }: HttpServerRequest.HttpServerRequest, limit: number): number =>
  headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : limit

export const makeArrivingBodies = () => {
  const arriving = new Map<string, number>()
  const add = (key: string, bytes: number): void => {
    const sum = (arriving.get(key) ?? 0) + bytes
    if (sum === 0) arriving.delete(key)
    else arriving.set(key, sum)
  }
  return {
    /** Counts a body of `key` while it is read; the read dies with {@link Unavailable} over the bound. */
    counted: <A, E>(key: string, bytes: number, read: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      bytes <= SMALL
        ? read
        : Effect.suspend(() => {
            const before = arriving.get(key) ?? 0
            if (before > 0 && before + bytes > ARRIVING_BYTES) return Effect.die(tooMany)
            add(key, bytes)
            return Effect.ensuring(
              read,
              Effect.sync(() => add(key, -bytes))
            )
          })
  }
}

/** Reads a body and keeps no byte of it. @error BodyTooLarge the body exceeds `limit` bytes */
export const discardBody = (request: HttpServerRequest.HttpServerRequest, limit: number) =>
  Effect.suspend(() => {
    let bytes = 0
    return Stream.runForEach(request.stream, (chunk) => {
      bytes += chunk.length
      return bytes > limit ? bodyTooLarge : Effect.void
    })
  })

/** A stream of bytes in parts of a bounded size, each with its digest: how a target stores what has any length. */
import { createHash, type Hash } from "node:crypto"
import { Effect, Exit, Fiber, Schema, Scope, Stream } from "effect"
import type { IoError } from "../disk/fsio.ts"
import { between, differs, digestChecked, endChecked } from "../packed/pieces.ts"
import type { BackupTarget, ObjectWriter } from "./target.ts"

export const Part = Schema.Struct({ key: Schema.String, bytes: Schema.Int, sha256: Schema.String })
export type Part = typeof Part.Type

export interface StoredParts {
  readonly parts: ReadonlyArray<Part>
  readonly bytes: number
  /** SHA-256 of all parts in a row, in hex. */
  readonly sha256: string
}

interface OpenPart {
  readonly key: string
  readonly object: ObjectWriter
  readonly scope: Scope.Closeable
  readonly hash: Hash
  bytes: number
}

const digits = 5

/** Writes bytes as the parts `<prefix>-00001` and so on; there is at least one. A part is completed while the next one is written. */
export const partsWriter = Effect.fnUntraced(function* (
  target: BackupTarget,
  prefix: string,
  partBytes = target.partBytes
) {
  const scope = yield* Effect.scope
  const parts: Array<Part> = []
  /** The hash of the first part goes on as the hash of all parts: most archives have one, and are hashed once. */
  let whole = createHash("sha256")
  let current: OpenPart | undefined
  let completing: Fiber.Fiber<void, IoError> | undefined

  const begin = Effect.gen(function* () {
    const key = `${prefix}-${String(parts.length + 1).padStart(digits, "0")}`
    const own = yield* Scope.fork(scope)
    const object = yield* Scope.provide(target.put(key), own)
    current = { key, object, scope: own, hash: createHash("sha256"), bytes: 0 }
    return current
  })
  const completed = Effect.suspend(() => (completing === undefined ? Effect.void : Fiber.join(completing)))
  const finish = Effect.fnUntraced(function* ({ bytes, hash, key, object, scope: own }: OpenPart) {
    current = undefined
    if (parts.length === 0) whole = hash.copy()
    const sha256 = hash.digest("hex")
    parts.push({ key, bytes, sha256 })
    yield* completed
    completing = yield* Effect.forkIn(Effect.andThen(object.end(sha256), Scope.close(own, Exit.void)), scope)
  })

  return {
    write: Effect.fnUntraced(function* (bytes: Uint8Array) {
      for (let rest = bytes; rest.length > 0; ) {
        const part: OpenPart = current ?? (yield* begin)
        const piece = rest.subarray(0, partBytes - part.bytes)
        rest = rest.subarray(piece.length)
        if (parts.length > 0) whole.update(piece)
        part.hash.update(piece)
        part.bytes += piece.length
        yield* part.object.write(piece)
        if (part.bytes >= partBytes) yield* finish(part)
      }
    }),
    /** Completes the last part. */
    end: Effect.gen(function* () {
      if (current !== undefined || parts.length === 0) yield* finish(current ?? (yield* begin))
      yield* completed
      const bytes = parts.reduce((sum, part) => sum + part.bytes, 0)
      const stored: StoredParts = { parts, bytes, sha256: whole.digest("hex") }
      return stored
    })
  }
})

/** Reads an object of a backup from a byte on. */
const readObject = (target: BackupTarget, key: string, start = 0) =>
  Stream.mapError(target.read(key, start), (error) =>
    error.code === "ENOENT" ? differs(key, "it is missing") : error
  )

/**
 * Returns the bytes of a part, or those from `start` to before `end`. The stream fails before the last of them if the
 * part is not as it was written.
 */
const readPart = (
  target: BackupTarget,
  { bytes, key, sha256 }: Part,
  start = 0,
  end = bytes
): Stream.Stream<Uint8Array, IoError> =>
  Stream.suspend(() => {
    let read = 0
    const contents = readObject(target, key).pipe(
      Stream.tap((chunk) =>
        Effect.suspend(() => {
          read += chunk.length
          return read > bytes ? Effect.fail(differs(key, `it has more than ${bytes} bytes`)) : Effect.void
        })
      )
    )
    const isWhole = Effect.suspend(() =>
      read === bytes ? Effect.void : Effect.fail(differs(key, `it has ${read} of ${bytes} bytes`))
    )
    return digestChecked(endChecked(contents, isWhole), key, sha256, (whole) => between(whole, start, end))
  })

/** Returns the parts with the bytes that each has before it. */
const placed = (parts: ReadonlyArray<Part>) => {
  let at = 0
  return parts.map((part) => {
    const before = at
    at += part.bytes
    return { part, before, after: at }
  })
}

/** Returns the bytes of all parts, or those from `start` on. @error IoError a part is missing or damaged */
export const readParts = (
  target: BackupTarget,
  parts: ReadonlyArray<Part>,
  start = 0,
  end = Number.POSITIVE_INFINITY
): Stream.Stream<Uint8Array, IoError> =>
  Stream.flatMap(
    Stream.fromIterable(placed(parts).filter(({ after, before }) => after > start && before < end)),
    ({ before, part }) =>
      readPart(target, part, Math.max(0, start - before), Math.min(part.bytes, end - before))
  )

/** Returns the bytes of parts from `start` on. The first of them is not read whole, nor compared with its digest. */
export const seekParts = (
  target: BackupTarget,
  parts: ReadonlyArray<Part>,
  start: number
): Stream.Stream<Uint8Array, IoError> => {
  const [first, ...others] = placed(parts).filter(({ after }) => after > start)
  if (first === undefined) return Stream.empty
  return Stream.concat(
    readObject(target, first.part.key, start - first.before),
    readParts(
      target,
      others.map(({ part }) => part)
    )
  )
}

/**
 * Returns the archive of a backup. The stream fails at its end if the archive is another than the control plane knows:
 * the manifest, which has the digests of the parts, is where others may write (spec 12.6).
 */
export const readArchive = (
  target: BackupTarget,
  { id, parts }: { readonly id: string; readonly parts: ReadonlyArray<Part> },
  sha256: string
): Stream.Stream<Uint8Array, IoError> => {
  const [first, ...others] = parts
  const archive = readParts(target, parts)
  // The part is compared with its digest.
  if (others.length === 0 && first?.sha256 === sha256) return archive
  return digestChecked(archive, `the archive of backup ${id}`, sha256)
}

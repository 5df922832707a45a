/** The manifest of a backup: its last object, without which there is no backup (spec 12.3). */
import { createHash } from "node:crypto"
import { dirname } from "node:path"
import { Effect, Option, Schema, Stream } from "effect"
import { BackupTask, PackedFigures } from "../../contract/domain/Backup.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { TimeText } from "../../contract/domain/nowText.ts"
import { decompressed } from "../archives/source.ts"
import { IoError } from "../disk/fsio.ts"
import { linesOf, merged } from "../packed/lines.ts"
import { mergedTar, type OpenTar } from "../packed/mergedTar.ts"
import { differs } from "../packed/pieces.ts"
import { Part, readParts, seekParts } from "./parts.ts"
import { type BackupTarget, baseId, idOfBase, manifestKey } from "./target.ts"

/** Longest manifest, in bytes: a definition has at most some MiB, and a terabyte has 16,000 parts. */
const LARGEST = 32 * 1024 * 1024

/** The beginning of a frame of zstd: bytes of the tar, and of the parts, before it. */
const Frame = Schema.Struct({ at: Schema.Int, stored: Schema.Int })
export type Frame = typeof Frame.Type

/** The base below the files of servers, as objects of a target (spec 12.12). */
export const StoredBase = Schema.Struct({
  /** SHA-256 of its entries, in hex. */
  digest: Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/)),
  /** Bytes of the tar. */
  bytes: Schema.Int,
  parts: Schema.Array(Part),
  frames: Schema.Array(Frame),
  index: Schema.Array(Part)
})
export type StoredBase = typeof StoredBase.Type

export const Manifest = Schema.Struct({
  format: Schema.Literal(1),
  id: Schema.String,
  server_id: ServerId,
  kind: Schema.Literals(["full", "written"]),
  /** What lies below the files of a backup of the kind `written`. It is read first: see {@link placesIn}. */
  base: Schema.optionalKey(StoredBase),
  created_at: TimeText,
  finished_at: TimeText,
  figures: PackedFigures,
  /** The archive: GNU tar, compressed with zstd. */
  parts: Schema.Array(Part),
  /** Where the frames of the archive begin, in their order. */
  frames: Schema.Array(Frame),
  /** The entries of the archive, one JSON object a line, compressed with zstd. */
  index: Schema.Array(Part),
  /** Bytes of a download of a backup of the kind `written`; the first ones lack them, and have them counted. */
  archive_bytes: Schema.optionalKey(Schema.Int),
  /** The server as its node and as the control plane had it. */
  spec: ServerSpec,
  server: BackupTask.members[0].fields.server
})
export type Manifest = typeof Manifest.Type

/** Returns where the bytes of files are: those of the base come before those that the server has written. */
export const placesIn = ({ base, frames, parts }: Manifest) => ({
  frames: [...(base?.frames ?? []), ...frames],
  parts: [...(base?.parts ?? []), ...parts]
})

/** Returns the lines of the index of a backup, of all files of its server. */
export const linesIn = (target: BackupTarget, { base, index }: Pick<Manifest, "base" | "index">) => {
  const own = linesOf(readParts(target, index))
  return base === undefined ? own : merged(linesOf(readParts(target, base.index)), own)
}

/** Returns the tar of a backup, from the frame before a byte on. Its first part is not compared with its digest. */
export const openTar = (target: BackupTarget, manifest: Manifest): OpenTar => {
  const { frames, parts } = placesIn(manifest)
  return (at) => {
    const frame = frames.findLast((one) => one.at <= at) ?? { at: 0, stored: 0 }
    const bytes = Stream.mapError(decompressed("tar.zst", seekParts(target, parts, frame.stored)), (error) =>
      error._tag === "IoError"
        ? error
        : differs(`the archive of backup ${manifest.id}`, "it cannot be unpacked")
    )
    return { from: frame.at, bytes }
  }
}

/**
 * Returns the tar of a backup of the kind `written` from a byte on, with all files of its server. From its beginning, all parts
 * are compared with their digests.
 */
export const tarOf = (target: BackupTarget, manifest: Manifest, from = 0) => {
  const { base = { bytes: 0, parts: [] }, parts } = manifest
  const whole = (start: number, of: ReadonlyArray<Part>) => ({
    from: start,
    bytes: decompressed("tar.zst", readParts(target, of))
  })
  return mergedTar({
    lines: linesIn(target, manifest),
    open:
      from > 0
        ? openTar(target, manifest)
        : (at) => (at < base.bytes ? whole(0, base.parts) : whole(base.bytes, parts)),
    baseBytes: base.bytes,
    from
  })
}

/** A manifest with its own digest: storage may damage it, too. */
const Sealed = Schema.Struct({ sha256: Schema.String, manifest: Schema.String })

const encode = Schema.encodeEffect(Schema.fromJsonString(Manifest))
const decodeSealed = Schema.decodeUnknownEffect(Schema.fromJsonString(Sealed))

const digestOf = (text: string) => createHash("sha256").update(text).digest("hex")

const damaged = (what: string, why: string) =>
  new IoError({ code: "DAMAGED", message: `the manifest of ${what} is damaged: ${why}` })

/** Stores the text of a manifest with its SHA-256, which is returned. */
export const seal = Effect.fnUntraced(function* (target: BackupTarget, id: string, text: string) {
  const object = yield* target.put(manifestKey(id))
  const sha256 = digestOf(text)
  yield* object.write(Buffer.from(JSON.stringify({ sha256, manifest: text })))
  yield* object.end()
  return sha256
}, Effect.scoped)

/** Stores a manifest, and returns its SHA-256. */
export const writeManifest = Effect.fnUntraced(function* (target: BackupTarget, manifest: Manifest) {
  return yield* seal(target, manifest.id, yield* Effect.orDie(encode(manifest)))
})

/**
 * Returns what was sealed, with its SHA-256, if it exists. @error IoError it is damaged
 * @param expected the SHA-256 that the control plane knows, if any
 */
export const unseal = Effect.fnUntraced(function* <A>(
  target: BackupTarget,
  id: string,
  schema: Schema.Codec<A, unknown>,
  expected?: string
): Effect.fn.Return<Option.Option<A & { readonly manifest_sha256: string }>, IoError> {
  const what = idOfBase(id) === undefined ? `backup ${id}` : id
  if (!(yield* target.has(manifestKey(id)))) return Option.none()
  const chunks: Array<Uint8Array> = []
  let bytes = 0
  yield* Stream.runForEach(target.read(manifestKey(id)), (chunk) => {
    bytes += chunk.length
    chunks.push(chunk)
    return bytes > LARGEST ? Effect.fail(damaged(what, `it has more than ${LARGEST} bytes`)) : Effect.void
  })
  const { manifest, sha256 } = yield* Effect.mapError(decodeSealed(Buffer.concat(chunks).toString()), () =>
    damaged(what, "it cannot be read")
  )
  if (digestOf(manifest) !== sha256 || sha256 !== (expected ?? sha256))
    return yield* damaged(what, "its SHA-256 is another")
  const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(schema))
  const read = yield* Effect.mapError(decode(manifest), () =>
    damaged(what, "this version of Muster cannot read it")
  )
  return Option.some({ ...read, manifest_sha256: sha256 })
})

/** Returns the manifest of a backup, as {@link unseal} does. */
export const readManifest = Effect.fnUntraced(function* (
  target: BackupTarget,
  id: string,
  expected?: string
): Effect.fn.Return<Option.Option<Manifest & { readonly manifest_sha256: string }>, IoError> {
  const found = yield* unseal(target, id, Manifest, expected)
  if (Option.isNone(found)) return found
  const { base, id: own, index, kind, parts } = found.value
  const what = `backup ${id}`
  if (own !== id) return yield* damaged(what, `it is of backup ${own}`)
  if ((kind === "written") !== (base !== undefined)) return yield* damaged(what, "its base is missing")
  const foreign = [...parts, ...index].find(({ key }) => dirname(key) !== id) ?? foreignOf(base)
  if (foreign === undefined) return found
  return yield* damaged(what, `the part ${foreign.key} is not of this backup`)
})

/** Returns a part that is not of a base, if there is one. */
export const foreignOf = (base: StoredBase | undefined) =>
  base === undefined
    ? undefined
    : [...base.parts, ...base.index].find(({ key }) => dirname(key) !== baseId(base.digest))

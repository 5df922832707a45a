/** The manifest of a backup: its last object, without which there is no backup (spec 12.3). */
import { createHash } from "node:crypto"
import { dirname } from "node:path"
import { Effect, Option, Schema, Stream } from "effect"
import { BackupTask, PackedFigures } from "../../contract/domain/Backup.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { TimeText } from "../../contract/domain/nowText.ts"
import { IoError } from "../disk/fsio.ts"
import { Part } from "./parts.ts"
import { type BackupTarget, manifestKey } from "./target.ts"

/** Longest manifest, in bytes: a definition has at most some MiB, and a terabyte has 16,000 parts. */
const LARGEST = 32 * 1024 * 1024

/** The beginning of a frame of zstd: bytes of the tar, and of the parts, before it. */
const Frame = Schema.Struct({ at: Schema.Int, stored: Schema.Int })
export type Frame = typeof Frame.Type

export const Manifest = Schema.Struct({
  format: Schema.Literal(1),
  id: Schema.String,
  server_id: ServerId,
  kind: Schema.Literal("full"),
  created_at: TimeText,
  finished_at: TimeText,
  figures: PackedFigures,
  /** The archive: GNU tar, compressed with zstd. */
  parts: Schema.Array(Part),
  /** Where the frames of the archive begin, in their order. */
  frames: Schema.Array(Frame),
  /** The entries of the archive, one JSON object a line, compressed with zstd. */
  index: Schema.Array(Part),
  /** The server as its node and as the control plane had it. */
  spec: ServerSpec,
  server: BackupTask.members[0].fields.server
})
export type Manifest = typeof Manifest.Type

/** The manifest with its own digest: storage may damage it, too. */
const Sealed = Schema.Struct({ sha256: Schema.String, manifest: Schema.String })

const encode = Schema.encodeEffect(Schema.fromJsonString(Manifest))
const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Manifest))
const decodeSealed = Schema.decodeUnknownEffect(Schema.fromJsonString(Sealed))

const digestOf = (text: string) => createHash("sha256").update(text).digest("hex")

const damaged = (id: string, why: string) =>
  new IoError({ code: "DAMAGED", message: `the manifest of backup ${id} is damaged: ${why}` })

/** Stores a manifest, and returns its SHA-256. */
export const writeManifest = Effect.fnUntraced(function* (target: BackupTarget, manifest: Manifest) {
  const text = yield* Effect.orDie(encode(manifest))
  const object = yield* target.put(manifestKey(manifest.id))
  const sha256 = digestOf(text)
  yield* object.write(Buffer.from(JSON.stringify({ sha256, manifest: text })))
  yield* object.end
  return sha256
}, Effect.scoped)

/**
 * Returns the manifest of a backup with its SHA-256, if it exists. @error IoError it is damaged
 * @param expected the SHA-256 that the control plane knows, if any
 */
export const readManifest = Effect.fnUntraced(function* (
  target: BackupTarget,
  id: string,
  expected?: string
): Effect.fn.Return<Option.Option<Manifest & { readonly manifest_sha256: string }>, IoError> {
  if (!(yield* target.has(manifestKey(id)))) return Option.none()
  const chunks: Array<Uint8Array> = []
  let bytes = 0
  yield* Stream.runForEach(target.read(manifestKey(id)), (chunk) => {
    bytes += chunk.length
    chunks.push(chunk)
    return bytes > LARGEST ? Effect.fail(damaged(id, `it has more than ${LARGEST} bytes`)) : Effect.void
  })
  const { manifest, sha256 } = yield* Effect.mapError(decodeSealed(Buffer.concat(chunks).toString()), () =>
    damaged(id, "it cannot be read")
  )
  if (digestOf(manifest) !== sha256 || sha256 !== (expected ?? sha256))
    return yield* damaged(id, "its SHA-256 is another")
  const read = yield* Effect.mapError(decode(manifest), () =>
    damaged(id, "this version of Muster cannot read it")
  )
  if (read.id !== id) return yield* damaged(id, `it is of backup ${read.id}`)
  const foreign = [...read.parts, ...read.index].find(({ key }) => dirname(key) !== id)
  return foreign === undefined
    ? Option.some({ ...read, manifest_sha256: sha256 })
    : yield* damaged(id, `the part ${foreign.key} is not of this backup`)
})

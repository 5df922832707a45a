/** The manifest of a backup: its last object, without which there is no backup (spec 12.3). */
import { createHash } from "node:crypto"
import { dirname } from "node:path"
import { Effect, Option, Schema, Stream } from "effect"
import { BackupFigures, BackupTask } from "../../contract/domain/Backup.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { TimeText } from "../../contract/domain/nowText.ts"
import { IoError } from "../disk/fsio.ts"
import { Part } from "./parts.ts"
import { type BackupTarget, manifestKey } from "./target.ts"

/** Longest manifest, in bytes: a definition has at most some MiB, and a terabyte has 16,000 parts. */
const LARGEST = 32 * 1024 * 1024

export const Manifest = Schema.Struct({
  format: Schema.Literal(1),
  id: Schema.String,
  server_id: ServerId,
  kind: Schema.Literal("full"),
  created_at: TimeText,
  finished_at: TimeText,
  figures: BackupFigures,
  /** The archive: GNU tar, compressed with zstd. */
  parts: Schema.Array(Part),
  /** The entries of the archive, one JSON object a line, compressed with zstd. */
  index: Schema.Array(Part),
  /** The server as its node and as the control plane had it. */
  spec: ServerSpec,
  server: BackupTask.members[0].fields.server
})
export type Manifest = typeof Manifest.Type

/** An entry of the index. */
export const IndexEntry = Schema.Struct({
  path: Schema.String,
  type: Schema.Literals(["file", "folder", "link"]),
  size: Schema.optionalKey(Schema.Int),
  sha256: Schema.optionalKey(Schema.String)
})
export type IndexEntry = typeof IndexEntry.Type

/** The manifest with its own digest: storage may damage it, too. */
const Sealed = Schema.Struct({ sha256: Schema.String, manifest: Schema.String })

const encode = Schema.encodeEffect(Schema.fromJsonString(Manifest))
const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Manifest))
const decodeSealed = Schema.decodeUnknownEffect(Schema.fromJsonString(Sealed))

const digestOf = (text: string) => createHash("sha256").update(text).digest("hex")

const damaged = (id: string, why: string) =>
  new IoError({ code: "DAMAGED", message: `the manifest of backup ${id} is damaged: ${why}` })

export const writeManifest = Effect.fnUntraced(function* (target: BackupTarget, manifest: Manifest) {
  const text = yield* Effect.orDie(encode(manifest))
  const object = yield* target.put(manifestKey(manifest.id))
  yield* object.write(Buffer.from(JSON.stringify({ sha256: digestOf(text), manifest: text })))
  yield* object.end
}, Effect.scoped)

/** Returns the manifest of a backup, if it exists. @error IoError it is damaged */
export const readManifest = Effect.fnUntraced(function* (
  target: BackupTarget,
  id: string
): Effect.fn.Return<Option.Option<Manifest>, IoError> {
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
  if (digestOf(manifest) !== sha256) return yield* damaged(id, "its SHA-256 is another")
  const read = yield* Effect.mapError(decode(manifest), () =>
    damaged(id, "this version of Muster cannot read it")
  )
  if (read.id !== id) return yield* damaged(id, `it is of backup ${read.id}`)
  const foreign = [...read.parts, ...read.index].find(({ key }) => dirname(key) !== id)
  return foreign === undefined
    ? Option.some(read)
    : yield* damaged(id, `the part ${foreign.key} is not of this backup`)
})

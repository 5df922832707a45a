/** The headers of tus 1.0, and what they say about a file (spec 10.8). */
import { Effect, Result, Schema } from "effect"
import type { HttpServerRequest } from "effect/http"
import { TUS_VERSION } from "../../contract/api/UploadsGroup.ts"
import { BadRequest, InvalidRequest, PreconditionFailed } from "../../contract/domain/errors.ts"
import { FileMode, FilePath } from "../../contract/domain/Files.ts"
import {
  ChecksumAlgorithm,
  type UploadRequest,
  type UploadState
} from "../../contract/nodeApi/NodeUploadsApi.ts"

type Request = HttpServerRequest.HttpServerRequest

/** The longest `Upload-Metadata`, in characters: a path of 4,096 bytes, and 2 KiB for what else clients send. */
const LONGEST_METADATA = 8192

const invalid = (name: string, why: string, hint: string) =>
  new InvalidRequest({ detail: `header ${name}: ${why}`, hint })

/** @error PreconditionFailed the caller speaks another version of tus, or none */
export const checkVersion = ({ headers, method }: Request): Effect.Effect<void, PreconditionFailed> => {
  const given = headers["tus-resumable"]
  if (given === TUS_VERSION || (given === undefined && method === "GET")) return Effect.void
  return Effect.fail(
    new PreconditionFailed({
      detail: `header tus-resumable: ${given === undefined ? "missing" : given.slice(0, 100)}`,
      hint: `Send Tus-Resumable: ${TUS_VERSION}.`
    })
  )
}

/** Returns a header with a number of bytes. */
export const bytesIn = (
  { headers }: Request,
  name: "upload-length" | "upload-offset"
): Effect.Effect<number, InvalidRequest> => {
  const given = headers[name]
  return given !== undefined && /^\d{1,15}$/.test(given)
    ? Effect.succeed(Number(given))
    : Effect.fail(
        invalid(
          name,
          given === undefined ? "missing" : "expected a number of bytes",
          name === "upload-length"
            ? "Send the bytes of the whole file; they cannot be announced later."
            : "Send the offset that HEAD returned."
        )
      )
}

const decoder = new TextDecoder("utf-8", { fatal: true })

const textOf = (base64: string): string | undefined => {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) return undefined
  return Result.getOrUndefined(Result.try(() => decoder.decode(Buffer.from(base64, "base64"))))
}

const pairsOf = (header: string): ReadonlyMap<string, string> | undefined => {
  const pairs = new Map<string, string>()
  for (const pair of header.split(",")) {
    const [, name, value = ""] = /^\s*([^\s,]+)(?: +([^\s,]*))?\s*$/.exec(pair) ?? []
    const text = textOf(value)
    if (name === undefined || text === undefined || pairs.has(name)) return undefined
    pairs.set(name, text)
  }
  return pairs
}

const Wanted = Schema.Struct({
  path: FilePath,
  mode: Schema.optionalKey(FileMode),
  "if-match": Schema.optionalKey(Schema.String.check(Schema.isMaxLength(200))),
  overwrite: Schema.optionalKey(Schema.Literals(["fail", "replace"]))
})
const decodeWanted = Schema.decodeUnknownEffect(Wanted)

type Wish = Pick<UploadRequest, "path" | "mode" | "if_match" | "if_none_match" | "metadata">

/** Returns what `Upload-Metadata` asks for; names that mean nothing here stay in `metadata`. */
export const wishOf = Effect.fnUntraced(function* ({ headers }: Request) {
  const metadata = headers["upload-metadata"] ?? ""
  const name = "upload-metadata"
  if (metadata.length > LONGEST_METADATA)
    return yield* invalid(name, `longer than ${LONGEST_METADATA} characters`, "Leave out what is not needed.")
  const pairs = metadata === "" ? new Map<string, string>() : pairsOf(metadata)
  if (pairs === undefined)
    return yield* invalid(
      name,
      "expected names, each with a text in base64, separated by commas",
      "Send the path of the file as `path` and its base64."
    )
  const {
    "if-match": if_match,
    mode,
    overwrite,
    path
  } = yield* Effect.mapError(decodeWanted(Object.fromEntries(pairs)), ({ message }) =>
    invalid(name, message.slice(0, 500), "Correct the value; path is required.")
  )
  const wish: Wish = {
    path,
    metadata,
    ...(mode === undefined ? {} : { mode }),
    ...(if_match === undefined ? {} : { if_match }),
    ...(overwrite === "fail" ? { if_none_match: "*" as const } : {})
  }
  return wish
})

const isAlgorithm = Schema.is(ChecksumAlgorithm)
const lengths = { sha1: 28, sha256: 44 } as const

/** Returns `Upload-Checksum`. @error BadRequest the algorithm or the digest cannot be read */
export const checksumOf = Effect.fnUntraced(function* ({ headers }: Request) {
  const given = headers["upload-checksum"]
  if (given === undefined) return {}
  const [algorithm, checksum = ""] = given.trim().split(/ +/)
  if (isAlgorithm(algorithm) && checksum.length === lengths[algorithm] && textOfDigest.test(checksum))
    return { algorithm, checksum }
  return yield* new BadRequest({
    detail: "header upload-checksum: expected sha1 or sha256, a space, and a digest in base64",
    hint: "Use an algorithm of Tus-Checksum-Algorithm, or leave the header out."
  })
})

const textOfDigest = /^[A-Za-z0-9+/]+=$/

/** Returns the headers of a response about an upload. */
export const uploadHeaders = ({ etag, expires_at, offset }: UploadState) => ({
  "upload-offset": String(offset),
  "upload-expires": new Date(expires_at).toUTCString(),
  ...(etag === undefined ? {} : { etag })
})

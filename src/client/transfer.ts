/** Folders, and contents of files in both directions, whose connections may break (spec 10.3). */
import { type Duration, Effect, Option, Schedule, Schema, Stream } from "effect"
import {
  HttpBody,
  type HttpClient,
  HttpClientError,
  HttpClientRequest,
  type HttpClientResponse
} from "effect/http"
import {
  BadRequest,
  BodyTooLarge,
  Conflict,
  Forbidden,
  InsufficientStorage,
  InternalError,
  InvalidRequest,
  Locked,
  NodeFailure,
  NotFound,
  PreconditionFailed,
  RangeNotSatisfiable,
  TimedOut,
  TooManyRequests,
  Unauthorized,
  Unavailable
} from "../contract/domain/errors.ts"
import type { ArchiveFormat } from "../contract/domain/Files.ts"
import type { Overwrite } from "../contract/domain/FileTask.ts"
import { ServerId } from "../contract/domain/Id.ts"
import { Operation } from "../contract/domain/Operation.ts"
import { makePause } from "../shared/work/backoff.ts"
import type { Calls } from "./calls.ts"
import { isTransient, retries, unexpected } from "./responses.ts"

/** Why the service refuses a transfer. */
const decodeRefusal = Schema.decodeUnknownEffect(
  Schema.fromJsonString(
    Schema.Union([
      BadRequest,
      Unauthorized,
      Forbidden,
      NotFound,
      Conflict,
      PreconditionFailed,
      BodyTooLarge,
      RangeNotSatisfiable,
      InvalidRequest,
      Locked,
      TooManyRequests,
      InternalError,
      NodeFailure,
      Unavailable,
      TimedOut,
      InsufficientStorage
    ])
  )
)

type Refusal = Effect.Success<ReturnType<typeof decodeRefusal>>

export type TransferError = Refusal | HttpClientError.HttpClientError

/** Bytes that were transferred; `total` if it is known. */
export interface TransferProgress {
  readonly done: number
  readonly total: number | undefined
}

/** A file at the time of its transfer. */
export interface TransferredFile {
  /** Changes with each write of the file; for {@link UploadOptions.ifMatch}. */
  readonly etag: string
  /** Bytes of the whole file, if they are known. */
  readonly size: number | undefined
}

export interface DownloadOptions {
  /** The first byte, from 0. */
  readonly start?: number
  /** The last byte, included; default: the end of the file. */
  readonly end?: number
  /** Fails with `PreconditionFailed` if the file has another tag. */
  readonly etag?: string
  /** Called once, before the first byte. */
  readonly onStart?: (file: TransferredFile) => void
  readonly onProgress?: (progress: TransferProgress) => void
  /** The time without a byte after which a connection counts as dead; default 70 s: the service ends one after 60 s. */
  readonly silence?: Duration.Input
}

export interface UploadOptions {
  /** Fails with `PreconditionFailed` if the file has another tag. */
  readonly ifMatch?: string
  /** `*`: fails with `PreconditionFailed` if the file exists. */
  readonly ifNoneMatch?: "*"
  /** Permissions in octal digits. By default a replaced file keeps its own, and a new one gets 0644. */
  readonly mode?: string
  /** Bytes of a stream, if they are known: a file that cannot fit is refused before it is sent. */
  readonly size?: number
  /** Browsers do not show the progress of a `Blob`: it is reported once, at the end. */
  readonly onProgress?: (progress: TransferProgress) => void
}

/** The limit of attempts in a row that transfer nothing. */
const ATTEMPTS = 5

const contentOf = (server: ServerId | string) => `/api/servers/${encodeURIComponent(server)}/files/content`

const backupOf = (backup: string) => `/api/backups/${encodeURIComponent(backup)}`

export const refused = (
  response: HttpClientResponse.HttpClientResponse
): Effect.Effect<never, TransferError> =>
  Effect.flatMap(response.text, decodeRefusal).pipe(
    Effect.catchIf(Schema.isSchemaError, () =>
      Effect.fail(unexpected(response, `status ${response.status} without an error body`))
    ),
    Effect.flatMap((refusal) => Effect.fail(refusal))
  )

const isOfTransport = (error: unknown) => HttpClientError.isHttpClientError(error) && isTransient(error)

const changed = () =>
  new PreconditionFailed({
    detail: "the file changed while it was read",
    hint: "Read the file again from its start."
  })

/** A weak tag, as of a proxy that compresses, says nothing about bytes. */
export const isStrong = (etag: string) => etag.startsWith('"')

const RANGE = /^bytes (\d{1,16})-(\d{1,16})\/(\d{1,16})$/

interface Opened {
  readonly file: TransferredFile
  /** The last byte that is sent, unless the length is unknown. */
  readonly last: number | undefined
}

/** Reads the head of a response to a request for the bytes from `at`. */
const opened = Effect.fnUntraced(function* (
  response: HttpClientResponse.HttpClientResponse,
  at: number,
  expected: string | undefined
): Effect.fn.Return<Opened, TransferError> {
  const { headers, status } = response
  if (status !== 200 && status !== 206) return yield* refused(response)
  const { etag = "" } = headers
  if (expected !== undefined && etag !== expected) return yield* changed()
  if (status === 206) {
    const [, first, last, size] = RANGE.exec(headers["content-range"] ?? "") ?? []
    if (Number(first) !== at) {
      return yield* unexpected(response, `other bytes than those from ${at}: ${headers["content-range"]}`)
    }
    return { file: { etag, size: Number(size) }, last: Number(last) }
  }
  if (at > 0) return yield* unexpected(response, `the whole file in place of the bytes from ${at}`)
  const length = headers["content-encoding"] === undefined ? headers["content-length"] : undefined
  const size = length === undefined ? undefined : Number(length)
  return { file: { etag, size }, last: size === undefined ? undefined : size - 1 }
})

/** Where a file is read from. */
interface Address {
  readonly route: string
  readonly urlParams: Readonly<Record<string, string>>
}

const read =
  (http: HttpClient.HttpClient) =>
  (
    { route, urlParams }: Address,
    { end, etag, onProgress, onStart, silence = "70 seconds", start = 0 }: DownloadOptions = {}
  ): Stream.Stream<Uint8Array, TransferError> =>
    Stream.unwrap(
      Effect.gen(function* () {
        let at = start
        let known: Opened | undefined
        let isDone = false
        let breaks = 0
        let pause = yield* makePause(retries)

        const request = () => {
          const expected = known?.file.etag ?? etag
          const isPart = at > 0 || end !== undefined
          return HttpClientRequest.get(route, {
            urlParams,
            headers: {
              // Ranges count the bytes of the file.
              "accept-encoding": "identity",
              range: isPart ? `bytes=${at}-${end ?? known?.last ?? ""}` : undefined,
              "if-range": isPart ? expected : undefined
            }
          })
        }
        const open = Effect.gen(function* () {
          const response = yield* http.execute(request())
          const now = yield* opened(response, at, known?.file.etag ?? etag)
          if (known === undefined) onStart?.(now.file)
          known = known ?? now
          const { last } = known
          let chunks = 0
          return response.stream.pipe(
            Stream.timeout(silence),
            Stream.tap((chunk) => {
              at += chunk.length
              onProgress?.({ done: at - start, total: last === undefined ? undefined : last + 1 - start })
              // Not the first chunk: a connection that breaks at once must not be opened without a pause.
              if (++chunks !== 2) return Effect.void
              breaks = 0
              return Effect.map(makePause(retries), (renewed) => {
                pause = renewed
              })
            }),
            Stream.concat(Stream.suspend(() => (isWhole() ? Stream.empty : Stream.fail(cut(response)))))
          )
        })
        const isWhole = () => {
          isDone = known !== undefined && (known.last === undefined || at > known.last)
          return isDone
        }
        const mayResume = (error: TransferError) => {
          const isOpen = known !== undefined
          if (isOpen && !(known?.last !== undefined && isStrong(known.file.etag))) return false
          return (isOpen ? isTransient(error) : isOfTransport(error)) && ++breaks < ATTEMPTS
        }
        return Stream.unwrap(open).pipe(
          Stream.catchIf(mayResume, () => (isWhole() ? Stream.empty : Stream.fromEffectDrain(pause))),
          Stream.repeat(Schedule.while(Schedule.forever, () => Effect.succeed(!isDone)))
        )
      })
    )

/**
 * Reads a file. A connection that breaks is opened again where it broke, as long as each few attempts bring bytes.
 * @error NotFound            the server or the file does not exist
 * @error Conflict            the path is a folder, a link or no file, or the server is moved or installed
 * @error PreconditionFailed  the file changed: the bytes so far belong to its earlier contents
 * @error RangeNotSatisfiable the file has no byte `start`
 */
export const download = (http: HttpClient.HttpClient) => {
  const readFrom = read(http)
  return (server: ServerId | string, path: string, options: DownloadOptions = {}) =>
    readFrom({ route: contentOf(server), urlParams: { path } }, options)
}

export interface BackupDownloadOptions extends DownloadOptions {
  /** A file of the backup; default: all of it, as `tar.zst`. */
  readonly path?: string
}

/** Reads a backup, or one file of it, as {@link download} reads a file. */
export const downloadBackup = (http: HttpClient.HttpClient) => {
  const readFrom = read(http)
  return (backup: string, { path, ...options }: BackupDownloadOptions = {}) =>
    readFrom(
      path === undefined
        ? { route: `${backupOf(backup)}/archive`, urlParams: {} }
        : { route: `${backupOf(backup)}/files/content`, urlParams: { path } },
      options
    )
}

export interface FolderOptions {
  /** Adds up the sizes of folders, within bounds; default: they are 0. */
  readonly sizes?: boolean
}

const NEXT = /;\s*rel="?next"?/

type Page<A> = readonly [ReadonlyArray<A>, HttpClientResponse.HttpClientResponse]

/** Reads pages of entries by name, as the stream is read. */
const byName = <A extends { readonly name: string }, E, R>(
  read: (after: { readonly after?: string }) => Effect.Effect<Page<A>, E, R>
) =>
  Stream.paginate("", (after: string) =>
    Effect.map(read(after === "" ? {} : { after }), ([entries, response]) => {
      const last = entries.at(-1)
      const hasNext = last !== undefined && NEXT.test(response.headers.link ?? "")
      return [entries, hasNext ? Option.some(last.name) : Option.none()] as const
    })
  )

/** Lists a folder by name, page by page as the stream is read. */
export const folder =
  (calls: Calls) =>
  (server: ServerId | string, path: string, { sizes = false }: FolderOptions = {}) =>
    byName((after) =>
      calls.files.list({
        params: { server: ServerId.make(server) },
        query: { path, ...after, ...(sizes ? { include: "size" } : {}) },
        responseMode: "decoded-and-response"
      })
    )

/** Lists a folder of a backup, as {@link folder} does. */
export const backupFolder = (calls: Calls) => (backup: string, path: string) =>
  byName((after) =>
    calls.backups.files({
      params: { backup },
      query: { path, ...after },
      responseMode: "decoded-and-response"
    })
  )

/** The connection ended before the last byte. */
const cut = (response: HttpClientResponse.HttpClientResponse) =>
  new HttpClientError.HttpClientError({
    reason: new HttpClientError.TransportError({
      request: response.request,
      description: "the connection ended before the last byte"
    })
  })

/** The contents of an upload. A stream runs again for each attempt. */
export type UploadBody<E> = Stream.Stream<Uint8Array, E> | Blob | Uint8Array | string

const TYPE = "application/octet-stream"

export const isBlob = (body: unknown): body is Blob => typeof Blob !== "undefined" && body instanceof Blob

/** The body of a request as it is sent: it reports its progress, and keeps its own failure. */
export const sending = <E>(
  body: UploadBody<E>,
  { onProgress, size }: Pick<UploadOptions, "onProgress" | "size">
) => {
  let failure: { readonly error: E } | undefined
  return {
    /** Returns the body of one attempt. */
    next: (): HttpBody.HttpBody => {
      if (typeof body === "string") return HttpBody.text(body, TYPE)
      if (body instanceof Uint8Array) return HttpBody.uint8Array(body, TYPE)
      if (isBlob(body)) return HttpBody.raw(body, { contentType: TYPE, contentLength: body.size })
      let done = 0
      const counted = body.pipe(
        Stream.tap((chunk) =>
          Effect.sync(() => {
            done += chunk.length
            onProgress?.({ done, total: size })
          })
        ),
        Stream.tapError((error) =>
          Effect.sync(() => {
            failure = { error }
          })
        )
      )
      return HttpBody.stream(counted, TYPE, size)
    },
    failure: () => failure,
    /** Fails as the body has, if it has. */
    explained: Effect.catch(
      (error: HttpClientError.HttpClientError): Effect.Effect<never, HttpClientError.HttpClientError | E> =>
        Effect.fail(failure === undefined ? error : failure.error)
    ),
    /** Reports the progress of a body that browsers do not show. */
    sent: () => {
      if (isBlob(body)) onProgress?.({ done: body.size, total: body.size })
    }
  }
}

/**
 * Writes a file, which replaces the one at this path once all bytes are on the disk of its node. After a break of the
 * connection, the file is sent again from its start, unless the write has a condition: it may have been done.
 * @error PreconditionFailed  the condition does not hold
 * @error InsufficientStorage the file does not fit; the earlier one stays
 * @error Conflict            the path is a folder, or leads through a link
 * @error Forbidden           the key or the blueprint allows no write there
 */
export const upload = (http: HttpClient.HttpClient) =>
  Effect.fn("MusterClient.upload")(function* <E = never>(
    server: ServerId | string,
    path: string,
    body: UploadBody<E>,
    options: UploadOptions = {}
  ) {
    const { ifMatch, ifNoneMatch, mode } = options
    const { explained, failure, next, sent } = sending(body, options)
    const request = Effect.suspend(() =>
      http.execute(
        HttpClientRequest.put(contentOf(server), {
          urlParams: { path, mode },
          body: next(),
          headers: { "if-match": ifMatch, "if-none-match": ifNoneMatch }
        })
      )
    )
    const isRepeatable = ifMatch === undefined && ifNoneMatch === undefined
    const response = yield* request.pipe(
      Effect.retry({
        schedule: retries,
        times: ATTEMPTS - 1,
        while: (error) => isRepeatable && failure() === undefined && isOfTransport(error)
      }),
      explained
    )
    const { headers, status } = response
    if (status !== 201 && status !== 204) return yield* refused(response)
    sent()
    return { created: status === 201, etag: headers.etag ?? "" }
  })

export interface UnpackOptions extends Pick<UploadOptions, "size" | "onProgress"> {
  /** Decides about entries whose path exists; default `fail`: the archive is refused as a whole. */
  readonly overwrite?: Overwrite
  /** Default: the format that the first bytes show. */
  readonly format?: ArchiveFormat
}

const decodeOperation = Schema.decodeUnknownEffect(Schema.fromJsonString(Operation))

/**
 * Unpacks an archive into a folder while it is sent, and returns the operation that moves its entries into place. It is sent
 * once: after a break of the connection, nothing of it stays.
 * @error Conflict            an entry exists, or the folder leads through a link
 * @error InvalidRequest      the archive is refused; `detail` names the entry
 * @error InsufficientStorage the archive does not fit
 * @error Forbidden           the key or the blueprint allows no write there
 */
export const unpack = (http: HttpClient.HttpClient) =>
  Effect.fn("MusterClient.unpack")(function* <E = never>(
    server: ServerId | string,
    folder: string,
    body: UploadBody<E>,
    options: UnpackOptions = {}
  ) {
    const { format, overwrite } = options
    const { explained, next, sent } = sending(body, options)
    const request = HttpClientRequest.put(`/api/servers/${encodeURIComponent(server)}/files/archive`, {
      urlParams: { path: folder, format, overwrite },
      body: next()
    })
    const response = yield* http.execute(request).pipe(explained)
    if (response.status !== 202) return yield* refused(response)
    sent()
    return yield* Effect.flatMap(response.text, decodeOperation).pipe(
      Effect.catchIf(Schema.isSchemaError, () => Effect.fail(unexpected(response, "no operation")))
    )
  })

/** Uploads that continue where their connection broke, also from another program (spec 10.8). */
import { type Duration, Effect, Predicate, type Stream } from "effect"
import { Base64 } from "effect/encoding"
import { type HttpClient, HttpClientError, HttpClientRequest } from "effect/http"
import { TUS_VERSION } from "../contract/api/UploadsGroup.ts"
import { ServerId } from "../contract/domain/Id.ts"
import { makePause } from "../shared/work/backoff.ts"
import type { Calls } from "./calls.ts"
import { isTransient, retries, unexpected } from "./responses.ts"
import { isBlob, refused, sending, type UploadOptions } from "./transfer.ts"

/** The contents of a resumable upload. Each part of them can be read several times. */
export type ResumableContents<E> =
  | Blob
  | Uint8Array
  | {
      /** Bytes. */
      readonly size: number
      /** Returns the bytes from `start`, inclusive, to `end`, exclusive. */
      readonly bytes: (start: number, end: number) => Stream.Stream<Uint8Array, E>
    }

/** An upload that exists on the server. */
export interface BegunUpload {
  /** Continues the upload later, as {@link ResumableOptions.upload}; another key cannot use it. */
  readonly id: string
  /** Bytes that the server has: 0 for a new upload. */
  readonly offset: number
}

export interface ResumableOptions extends Pick<UploadOptions, "ifMatch" | "mode" | "onProgress"> {
  /** `*`: fails with `PreconditionFailed` if the file exists. */
  readonly ifNoneMatch?: "*"
  /** The id of an unfinished upload of the same contents. If the upload is gone, another one begins. */
  readonly upload?: string
  /** Called before the first byte, and again if the upload is lost and another one begins. An effect runs before the bytes. */
  readonly onBegin?: (upload: BegunUpload) => Effect.Effect<void> | void
  /** The time without a byte after which a connection counts as dead, for contents in a stream; default 70 s. */
  readonly silence?: Duration.Input
}

/** The limit of attempts in a row that bring no part: about 40 s, in which a service or a node restarts. */
const ATTEMPTS = 10

/** Bytes of one request. A proxy that gathers requests, or has a limit for them, passes such a part on. */
const PART = 32 * 1024 * 1024

/** The limit of uploads of one call: after an upload that the server has lost, another one begins. */
const UPLOADS = 3

const TUS = { "tus-resumable": TUS_VERSION }

const metadataOf = (path: string, { ifMatch, ifNoneMatch, mode }: ResumableOptions) =>
  Object.entries({
    path,
    ...(mode === undefined ? {} : { mode }),
    ...(ifMatch === undefined ? {} : { "if-match": ifMatch }),
    ...(ifNoneMatch === undefined ? {} : { overwrite: "fail" })
  })
    .map(([name, value]) => `${name} ${Base64.encode(value)}`)
    .join(",")

const partOf = <E>(contents: ResumableContents<E>, start: number, end: number) => {
  if (isBlob(contents)) return contents.slice(start, end)
  return contents instanceof Uint8Array ? contents.subarray(start, end) : contents.bytes(start, end)
}

const sizeOf = <E>(contents: ResumableContents<E>) =>
  contents instanceof Uint8Array ? contents.length : contents.size

/** Fails once no byte was sent for an interval. */
const failIfSilent = Effect.fnUntraced(function* (
  request: HttpClientRequest.HttpClientRequest,
  sent: () => number,
  silence: Duration.Input
) {
  let before = -1
  while (before !== sent()) {
    before = sent()
    yield* Effect.sleep(silence)
  }
  const reason = new HttpClientError.TransportError({ request, description: "no byte was sent for too long" })
  return yield* new HttpClientError.HttpClientError({ reason })
})

/** Makes the requests of the upload of one file: each of them is sent once. */
const requestsOf = (
  http: HttpClient.HttpClient,
  calls: Calls,
  server: ServerId | string,
  options: ResumableOptions
) => {
  const route = `/api/servers/${encodeURIComponent(server)}/files/uploads`
  const of = (upload: string) => ({ params: { server: ServerId.make(server), upload }, headers: TUS })
  return {
    begin: Effect.fnUntraced(function* (path: string, size: number) {
      const headers = { ...TUS, "upload-length": String(size), "upload-metadata": metadataOf(path, options) }
      const response = yield* http.execute(HttpClientRequest.post(route, { headers }))
      if (response.status !== 201) return yield* refused(response)
      const id = response.headers.location?.split("/").at(-1) ?? ""
      return id === ""
        ? yield* unexpected(response, "no Location")
        : { id, etag: response.headers.etag ?? "" }
    }),
    find: (id: string) => calls.uploads.find(of(id)),
    end: (id: string) => calls.uploads.end(of(id)),
    append: Effect.fnUntraced(function* <E>(
      id: string,
      contents: ResumableContents<E>,
      { end, start }: { readonly start: number; readonly end: number }
    ) {
      const { onProgress, silence = "70 seconds" } = options
      const total = sizeOf(contents)
      let sent = 0
      const body = sending(partOf(contents, start, end), {
        size: end - start,
        onProgress: ({ done }) => {
          sent = done
          onProgress?.({ done: start + done, total })
        }
      })
      const request = HttpClientRequest.patch(`${route}/${encodeURIComponent(id)}`, {
        headers: { ...TUS, "upload-offset": String(start) },
        body: body.next()
      })
      const isCounted = !isBlob(contents) && !(contents instanceof Uint8Array)
      const silent = failIfSilent(request, () => sent, silence)
      const executed = isCounted ? Effect.raceFirst(http.execute(request), silent) : http.execute(request)
      const response = yield* body.explained(executed)
      if (response.status !== 204) return yield* refused(response)
      const offset = Number(response.headers["upload-offset"])
      if (!(offset > start && offset <= total))
        return yield* unexpected(response, `offset ${response.headers["upload-offset"]} after ${start}`)
      onProgress?.({ done: offset, total })
      return { offset, etag: response.headers.etag ?? "" }
    })
  }
}

/** Whether the offset of an upload can be read again, and the rest sent. A conflict may mean another offset. */
const mayContinue = (error: unknown, isAppending: boolean) =>
  isTransient(error) ||
  Predicate.isTagged(error, "Locked") ||
  (isAppending && Predicate.isTagged(error, "Conflict"))

/**
 * Writes a file as {@link upload} does. After a break of the connection, or a restart of the service or of the node, only
 * the bytes follow that the node does not have. The call fails after ten attempts in a row that bring nothing; the upload
 * stays for 24 h, in which another call continues it with its id.
 * @error PreconditionFailed  a condition does not hold; the upload is gone
 * @error InsufficientStorage the file does not fit: the upload continues once there is room
 * @error Conflict            the path is a folder, or the key or the server has too many unfinished uploads
 * @error Locked              another program adds bytes to the upload
 * @error Forbidden           the key or the blueprint allows no write there
 */
export const uploadResumable = (http: HttpClient.HttpClient, calls: Calls) =>
  Effect.fn("MusterClient.uploadResumable")(function* <E = never>(
    server: ServerId | string,
    path: string,
    contents: ResumableContents<E>,
    options: ResumableOptions = {}
  ) {
    const { append, begin, end, find } = requestsOf(http, calls, server, options)
    const size = sizeOf(contents)
    let id = options.upload
    let offset: number | undefined
    let uploads = 0
    let breaks = 0
    let isTold = false
    let pause = yield* makePause(retries)

    const tell = Effect.fnUntraced(function* (begun: BegunUpload) {
      options.onProgress?.({ done: begun.offset, total: size })
      if (isTold) return
      isTold = true
      const effect = options.onBegin?.(begun)
      if (Effect.isEffect(effect)) yield* effect
    })
    const forget = () => {
      id = undefined
      offset = undefined
      isTold = false
    }
    /** Sends one request, and returns the tag of the file if it is in place. */
    const next = Effect.gen(function* () {
      if (id === undefined) {
        uploads += 1
        const made = yield* begin(path, size)
        id = made.id
        offset = 0
        yield* tell({ id, offset })
        return size === 0 ? made.etag : undefined
      }
      if (offset === undefined) {
        const state = yield* find(id)
        if (state.size !== size || state.path !== path) {
          yield* Effect.ignore(end(id))
          return forget()
        }
        offset = state.offset
        yield* tell({ id, offset })
        return state.etag
      }
      const appended = yield* append(id, contents, { start: offset, end: Math.min(size, offset + PART) })
      offset = appended.offset
      breaks = 0
      pause = yield* makePause(retries)
      return offset === size ? appended.etag : undefined
    })
    const attempt = next.pipe(
      Effect.catchIf(
        (error) => id !== undefined && uploads < UPLOADS && Predicate.isTagged(error, "NotFound"),
        () => Effect.sync(forget)
      ),
      Effect.catchIf(
        (error) => mayContinue(error, offset !== undefined) && ++breaks < ATTEMPTS,
        () => {
          offset = undefined
          return pause
        }
      )
    )
    while (true) {
      const etag = yield* attempt
      if (etag !== undefined) return { etag }
    }
  })

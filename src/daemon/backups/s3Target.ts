/** Backups as objects of an S3 server (spec 12.6). Each object is one request with its length and its digest. */
import { createHash } from "node:crypto"
import { isIP } from "node:net"
import { basename } from "node:path"
import { AwsV4Signer } from "aws4fetch"
import { ByteSize, Clock, Data, Duration, Effect, Schedule, Stream } from "effect"
import { HttpClient, HttpClientRequest, type HttpClientResponse, HttpIncomingMessage } from "effect/http"
import { whyNoAnswer } from "../../contract/api/noAnswer.ts"
import type { S3Access } from "../../contract/domain/BackupTarget.ts"
import { megabytes } from "../../contract/domain/Limits.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"
import { IoError } from "../disk/fsio.ts"
import { type BackupTarget, manifestKey, newestOf } from "./target.ts"

/** Bytes of a part. It is in memory until it is stored: a request that fails is repeated with the same bytes. */
const PART_BYTES = 16 * 1024 * 1024
/** Time of a request until its response begins; a part needs 55 KB/s. */
const LONGEST = Duration.minutes(5)
/** Longest time for {@link LEAST_BYTES} of an object that is read, and for a page of a list. */
const STALL = Duration.seconds(60)
/** As fast as the time of a request lets a part be written. */
const LEAST_BYTES = (PART_BYTES * Duration.toSeconds(STALL)) / Duration.toSeconds(LONGEST)
/** Repetitions of a request that failed for a reason that may pass. */
const TIMES = 4
const AGAIN = Schedule.jittered(Schedule.exponential("300 millis"))
const AT_ONCE = 4
const LARGEST_LIST = ByteSize.mebibytes(4)
/** Pages of a list, and objects of each: what is found is in memory. */
const MOST_PAGES = 2_000
const PAGE_OBJECTS = 1_000

/** Keys of objects of backups, below the prefix: of other objects in a bucket, none is read or removed. */
const objectPattern = /^([a-z][a-z0-9]{11}|base-[0-9a-f]{64})\/[a-z0-9.-]{1,32}$/

class S3Failure extends Data.TaggedError("S3Failure")<{
  /** 0: no response. */
  readonly status: number
  /** The code of S3, or of the system. */
  readonly code: string
  readonly message: string
}> {}

const mayPass = ({ code, status }: S3Failure) =>
  status === 0
    ? code !== "MUSTER_ADDRESS_REFUSED" && code !== "ENOTFOUND"
    : status === 429 || status === 408 || (status >= 500 && status !== 501 && status !== 507)

const isFull = ({ code, status }: S3Failure) => status === 507 || /StorageFull|Quota|NoSpace/i.test(code)

const nextOf = ({ code, status }: S3Failure, { path_style = false }: S3Access): string | undefined => {
  if (status === 401 || status === 403)
    return "Check access_key_id, secret_access_key and what the key may do with the bucket."
  if (status >= 300 && status < 400) return "Check endpoint and region: redirects are not followed."
  if ((status === 404 || status === 400 || code === "ENOTFOUND") && !path_style)
    return "Check endpoint and bucket; a server without a host name for each bucket needs path_style."
  if (status === 404) return "Check endpoint and bucket."
  return undefined
}

interface Ask {
  readonly method: "DELETE" | "GET" | "HEAD" | "PUT"
  /** Empty: the bucket. */
  readonly key: string
  readonly query?: Readonly<Record<string, string>>
  readonly body?: Uint8Array
  /** The SHA-256 of the body in hex, if it is known. */
  readonly sha256?: string | undefined
  readonly headers?: Readonly<Record<string, string>>
}

/** Makes the signed requests to the bucket of a target. */
const makeSend = (access: S3Access, http: HttpClient.HttpClient) => {
  const { access_key_id, bucket, endpoint, path_style = false, region, secret_access_key } = access
  const { host, hostname, protocol } = new URL(endpoint)
  // An address has no host names below it.
  const isPath = path_style || isIP(hostname.replace(/^\[(.*)\]$/, "$1")) !== 0
  const root = isPath ? `${endpoint.replace(/\/$/, "")}/${bucket}` : `${protocol}//${bucket}.${host}`

  const signed = ({ body, headers = {}, key, method, query = {}, sha256 }: Ask) =>
    Effect.promise(() => {
      const url = new URL(`${root}/${key}`)
      for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
      const digest =
        sha256 ??
        createHash("sha256")
          .update(body ?? "")
          .digest("hex")
      const signer = new AwsV4Signer({
        method,
        url: url.href,
        headers: { ...headers, "x-amz-content-sha256": digest },
        service: "s3",
        region,
        accessKeyId: access_key_id,
        secretAccessKey: secret_access_key
      })
      return signer.sign()
    })

  const failureOf = Effect.fnUntraced(function* (response: HttpClientResponse.HttpClientResponse) {
    const { status } = response
    const text = yield* response.text.pipe(
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.kibibytes(64)),
      Effect.catch(() => Effect.succeed(""))
    )
    // Only the code: the rest of an error may repeat the request.
    const code = /<Code>([A-Za-z0-9]{1,64})<\/Code>/.exec(text)?.[1] ?? ""
    return new S3Failure({ status, code, message: code === "" ? `status ${status}` : `${status} ${code}` })
  })

  return Effect.fnUntraced(function* (ask: Ask) {
    const { headers, url } = yield* signed(ask)
    const request = HttpClientRequest.make(ask.method)(url.href).pipe(
      HttpClientRequest.setHeaders(Object.fromEntries(headers)),
      ask.body === undefined
        ? (same) => same
        : HttpClientRequest.bodyUint8Array(ask.body, "application/octet-stream")
    )
    const response = yield* http.execute(request).pipe(
      Effect.provideService(HttpClient.TracerDisabledWhen, () => true),
      Effect.mapError((error) => {
        const { code, message } = whyNoAnswer(error)
        return new S3Failure({ status: 0, code, message: cleanText(message === "" ? code : message) })
      }),
      Effect.timeoutOrElse({
        duration: LONGEST,
        orElse: () =>
          Effect.fail(new S3Failure({ status: 0, code: "ETIMEDOUT", message: "no response for 5 minutes" }))
      })
    )
    if (response.status === 200 || response.status === 204 || response.status === 206) return response
    return yield* Effect.flatMap(failureOf(response), (failure) => Effect.fail(failure))
  })
}

/** Ends a body whose bytes come too slowly. Only the time counts in which the reader waits for them. */
const moving = (body: Stream.Stream<Uint8Array, IoError>, broken: (message: string) => IoError) =>
  Stream.transformPull(body, (pull) =>
    Effect.map(Clock.Clock, (clock) => {
      const now = () => elapsedMillisOf(clock)
      let [bytes, waited] = [0, 0]
      const tooSlow = () =>
        Effect.fail(
          broken(
            `it sent ${bytes} bytes in ${Duration.toSeconds(STALL)} s, and ${megabytes(LEAST_BYTES)} are needed`
          )
        )
      return Effect.suspend(() => {
        const since = now()
        const left = Math.max(0, Duration.toMillis(STALL) - waited)
        return Effect.tap(Effect.timeoutOrElse(pull, { duration: left, orElse: tooSlow }), (chunks) =>
          Effect.sync(() => {
            waited += now() - since
            bytes += chunks.reduce((sum, { length }) => sum + length, 0)
            if (bytes >= LEAST_BYTES) [bytes, waited] = [0, 0]
          })
        )
      })
    })
  )

const entities: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" }

/** Returns the text of the first element of a name. */
const elementOf = (xml: string, name: string): string | undefined =>
  new RegExp(`<${name}>([^<]*)</${name}>`)
    .exec(xml)?.[1]
    ?.replaceAll(/&(\w+);/g, (whole, entity: string) => entities[entity] ?? whole)

/** Returns a copy: a part of a text keeps the whole text in memory. */
const copied = (text: string) => Buffer.from(text).toString()

/** Returns the objects of backups in a page of a list. */
const objectsIn = (xml: string, below: string) =>
  [...xml.matchAll(/<Contents>.*?<\/Contents>/gs)].flatMap(([object]) => {
    const key = copied((elementOf(object, "Key") ?? "").slice(below.length))
    const id = objectPattern.exec(key)?.[1]
    const at = Date.parse(elementOf(object, "LastModified") ?? "")
    return id === undefined || Number.isNaN(at) ? [] : [{ id, key, at }]
  })

/** Returns the target of a node for a bucket. */
export const s3Target = (access: S3Access, http: HttpClient.HttpClient): BackupTarget => {
  const { bucket, prefix } = access
  const below = prefix === undefined ? "" : `${prefix}/`
  const send = makeSend(access, http)

  const explained = (what: string) => (failure: S3Failure) => {
    const isMissing = failure.status === 404 && failure.code !== "NoSuchBucket"
    const next = nextOf(failure, access)
    return new IoError({
      code: isFull(failure) ? "ENOSPC" : isMissing ? "ENOENT" : "S3",
      message: `${what} bucket ${bucket}: ${failure.message}`,
      ...(next === undefined ? {} : { next })
    })
  }
  const ask = (what: string, request: Ask) =>
    Effect.retry(send(request), { while: mayPass, schedule: AGAIN, times: TIMES }).pipe(
      Effect.mapError(explained(what))
    )

  /** Reads on where the connection broke. */
  const readFrom = (key: string, start: number, times: number): Stream.Stream<Uint8Array, IoError> =>
    Stream.unwrap(
      Effect.gen(function* () {
        const response = yield* ask(`read ${key} of`, {
          method: "GET",
          key: `${below}${key}`,
          ...(start === 0 ? {} : { headers: { range: `bytes=${start}-` } })
        })
        const broken = (message: string) =>
          new IoError({ code: "S3", message: `read ${key} of bucket ${bucket}: ${message}` })
        if (start > 0 && response.status !== 206) return Stream.fail(broken("the server reads no ranges"))
        let at = start
        return response.stream.pipe(
          Stream.mapError((error) => broken(cleanText(whyNoAnswer(error).message))),
          (body) => moving(body, broken),
          Stream.tap((chunk) =>
            Effect.sync(() => {
              at += chunk.length
            })
          ),
          Stream.catch((error) => (times === 0 ? Stream.fail(error) : readFrom(key, at, times - 1)))
        )
      })
    )

  const pages = Effect.fnUntraced(function* (
    start: string,
    use: (id: string, key: string, at: number) => Effect.Effect<void, IoError>
  ) {
    const unreadable = (why: string) => new IoError({ code: "S3", message: `list bucket ${bucket}: ${why}` })
    let token: string | undefined
    // A list that is cut off would make a sweep remove what the rest needs.
    for (let page = 0; ; page++) {
      if (page === MOST_PAGES) return yield* unreadable(`it has more than ${MOST_PAGES} pages`)
      const query = {
        "list-type": "2",
        prefix: `${below}${start}`,
        ...(token === undefined ? {} : { "continuation-token": token })
      }
      const response = yield* ask("list", { method: "GET", key: "", query })
      const xml = yield* response.text.pipe(
        Effect.provideService(HttpIncomingMessage.MaxBodySize, LARGEST_LIST),
        Effect.mapError(() => unreadable("the list cannot be read")),
        Effect.timeoutOrElse({
          duration: STALL,
          orElse: () => Effect.fail(unreadable(`a page did not end within ${Duration.toSeconds(STALL)} s`))
        })
      )
      const found = objectsIn(xml, below)
      if (found.length > PAGE_OBJECTS)
        return yield* unreadable(`a page has more than ${PAGE_OBJECTS} objects`)
      yield* Effect.forEach(found, ({ at, id, key }) => use(id, key, at), {
        concurrency: AT_ONCE,
        discard: true
      })
      const next = elementOf(xml, "NextContinuationToken")
      if (elementOf(xml, "IsTruncated") !== "true" || next === undefined) return
      if (next === token) return yield* unreadable("a page names itself as the next one")
      token = next
    }
  })

  const removeObject = (key: string) =>
    ask(`remove ${key} of`, { method: "DELETE", key: `${below}${key}` }).pipe(
      Effect.asVoid,
      Effect.catchIf(
        ({ code }) => code === "ENOENT",
        () => Effect.void
      )
    )

  return {
    partBytes: PART_BYTES,
    ready: Effect.void,
    put: (key) =>
      Effect.sync(() => {
        const pieces: Array<Uint8Array> = []
        return {
          write: (bytes: Uint8Array) => Effect.sync(() => void pieces.push(Buffer.from(bytes))),
          end: (sha256?: string) =>
            Effect.suspend(() => {
              const body = Buffer.concat(pieces.splice(0))
              return Effect.asVoid(
                ask(`write ${key} to`, { method: "PUT", key: `${below}${key}`, body, sha256 })
              )
            })
        }
      }),
    read: (key, start = 0) => readFrom(key, start, TIMES),
    has: (key) =>
      ask(`look at ${key} of`, { method: "HEAD", key: `${below}${key}` }).pipe(
        Effect.as(true),
        Effect.catchIf(
          ({ code }) => code === "ENOENT",
          () => Effect.succeed(false)
        )
      ),
    list: Effect.gen(function* () {
      const found = new Map<string, Map<string, number>>()
      yield* pages("", (id, key, at) =>
        Effect.sync(
          () => void found.set(id, (found.get(id) ?? new Map<string, number>()).set(basename(key), at))
        )
      )
      return [...found].map(([id, objects]) => ({ id, at: newestOf(objects), objects }))
    }),
    remove: (id, only) =>
      only === undefined
        ? Effect.andThen(
            removeObject(manifestKey(id)),
            pages(`${id}/`, (_, key) => removeObject(key))
          )
        : Effect.forEach(only, (name) => removeObject(`${id}/${name}`), { discard: true })
  }
}

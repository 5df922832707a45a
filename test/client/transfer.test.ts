import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { connect, MusterError } from "../../src/client/promise.ts"
import { accept } from "../../src/client/responses.ts"
import { download, type TransferProgress, unpack, upload } from "../../src/client/transfer.ts"

const CONTENT = Buffer.from(Array.from({ length: 300_000 }, (_, at) => at % 251))

type Answer = (request: IncomingMessage, response: ServerResponse) => void

/** A service that answers each request with the next of its answers, and its client. */
const serviceOf = (...answers: ReadonlyArray<Answer>) =>
  Effect.gen(function* () {
    const asked: Array<IncomingMessage["headers"] & { readonly target: string }> = []
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer((request, response) => {
          const answer = answers[asked.length] ?? answers.at(-1)
          asked.push({ ...request.headers, target: `${request.method} ${request.url}` })
          answer?.(request, response)
        }).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) =>
        Effect.sync(() => {
          made.closeAllConnections()
          made.close()
        })
    )
    const address = server.address()
    const port = typeof address === "object" ? address?.port : 0
    const http = (yield* HttpClient.HttpClient).pipe(
      HttpClient.mapRequest(HttpClientRequest.prependUrl(`http://127.0.0.1:${port}`)),
      HttpClient.transformResponse(Effect.flatMap(accept))
    )
    return {
      asked,
      url: `http://127.0.0.1:${port}`,
      download: download(http),
      unpack: unpack(http),
      upload: upload(http)
    }
  }).pipe(Effect.provide(FetchHttpClient.layer))

const refusal = (code: number, status: string, detail: string) => (_: unknown, response: ServerResponse) => {
  response.writeHead(code, { "content-type": "application/json" })
  response.end(JSON.stringify({ code: String(code), status, detail, hint: "Do it.", request_id: "r" }))
}

/** Sends the file or the requested part of it, and breaks the connection after some bytes. */
const sends =
  ({
    breakAfter,
    content = CONTENT,
    etag = '"1"'
  }: {
    readonly breakAfter?: number
    readonly content?: Buffer
    readonly etag?: string
  } = {}): Answer =>
  ({ headers }, response) => {
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(headers.range ?? "") ?? []
    const isPart = first !== undefined && (headers["if-range"] ?? etag) === etag
    const from = isPart ? Number(first) : 0
    const to = isPart && last !== "" ? Math.min(Number(last), content.length - 1) : content.length - 1
    const body = content.subarray(from, to + 1)
    response.writeHead(isPart ? 206 : 200, {
      etag,
      "content-length": body.length,
      ...(isPart ? { "content-range": `bytes ${from}-${to}/${content.length}` } : {})
    })
    if (breakAfter === undefined) return response.end(body)
    response.write(body.subarray(0, breakAfter), () => response.socket?.end())
    return undefined
  }

const collected = <E>(stream: Stream.Stream<Uint8Array, E>) =>
  Effect.map(Stream.runCollect(stream), (chunks) => Buffer.concat(chunks))

describe("spec 10.3: downloads of the client", () => {
  it.live("a download resumes where its connection broke, and its progress never goes back", () =>
    Effect.gen(function* () {
      const cut = sends({ breakAfter: 90_000 })
      const { asked, download } = yield* serviceOf(
        cut,
        cut,
        refusal(503, "Service Unavailable", "later"),
        sends()
      )
      const progress: Array<TransferProgress> = []
      const started: Array<unknown> = []
      const bytes = yield* collected(
        download("k7f", "/world/level ä.dat", {
          onProgress: (now) => progress.push(now),
          onStart: (file) => started.push(file)
        })
      )
      assert.isTrue(bytes.equals(CONTENT))
      assert.deepStrictEqual(started, [{ etag: '"1"', size: 300_000 }])
      assert.deepStrictEqual(progress.at(-1), { done: 300_000, total: 300_000 })
      assert.deepStrictEqual(
        progress.map(({ done }) => done),
        progress.map(({ done }) => done).toSorted((one, other) => one - other)
      )
      const [first, second, third, fourth] = asked
      assert.strictEqual(first?.target, "GET /api/servers/k7f/files/content?path=%2Fworld%2Flevel+%C3%A4.dat")
      assert.strictEqual(first?.range, undefined)
      for (const resumed of [second, third, fourth]) {
        assert.match(resumed?.range ?? "", /^bytes=[1-9]\d+-299999$/)
        assert.strictEqual(resumed?.["if-range"], '"1"')
      }
    }).pipe(Effect.scoped)
  )

  it.live("a part has its bytes only, also after a break", () =>
    Effect.gen(function* () {
      const { download } = yield* serviceOf(sends({ breakAfter: 10 }), sends())
      const bytes = yield* collected(download("k7f", "/a", { start: 1000, end: 99_999 }))
      assert.isTrue(bytes.equals(CONTENT.subarray(1000, 100_000)))
    }).pipe(Effect.scoped)
  )

  it.live("a file that changes during a break ends the download, and no bytes of the new one follow", () =>
    Effect.gen(function* () {
      const { download } = yield* serviceOf(
        sends({ breakAfter: 90_000 }),
        sends({ etag: '"2"', content: Buffer.alloc(300_000, 1) })
      )
      const bytes: Array<Uint8Array> = []
      const failure = yield* Effect.flip(
        Stream.runForEach(download("k7f", "/a"), (chunk) => Effect.sync(() => bytes.push(chunk)))
      )
      assert.strictEqual(failure._tag, "PreconditionFailed")
      const had = Buffer.concat(bytes)
      assert.isTrue(had.equals(CONTENT.subarray(0, had.length)))
    }).pipe(Effect.scoped)
  )

  it.live("a download without a strong tag or a length fails where it breaks", () =>
    Effect.gen(function* () {
      const weak = yield* serviceOf(sends({ etag: 'W/"1"', breakAfter: 10 }))
      assert.strictEqual((yield* Effect.flip(collected(weak.download("k7f", "/a"))))._tag, "HttpClientError")
      assert.strictEqual(weak.asked.length, 1)
    }).pipe(Effect.scoped)
  )

  it.live("after a few connections that bring nothing, the download fails", () =>
    Effect.gen(function* () {
      const { asked, download } = yield* serviceOf(sends({ breakAfter: 10 }), (_, { socket }) =>
        socket?.end()
      )
      const failure = yield* Effect.flip(collected(download("k7f", "/a")))
      assert.strictEqual(failure._tag, "HttpClientError")
      assert.strictEqual(asked.length, 5)
    }).pipe(Effect.scoped)
  )

  it.live("refusals are the classes of the contract, at once", () =>
    Effect.gen(function* () {
      for (const [code, status, tag] of [
        [404, "Not Found", "NotFound"],
        [409, "Conflict", "Conflict"],
        [416, "Range Not Satisfiable", "RangeNotSatisfiable"],
        [503, "Service Unavailable", "Unavailable"]
      ] as const) {
        const { asked, download } = yield* serviceOf(refusal(code, status, "no such path: /a"))
        const failure = yield* Effect.flip(collected(download("k7f", "/a", { start: 5 })))
        assert.deepInclude({ ...failure, _tag: failure._tag }, { _tag: tag, detail: "no such path: /a" })
        assert.strictEqual(asked.length, 1)
      }
      const page = yield* serviceOf((_, response) => response.writeHead(404).end("<html>"))
      assert.strictEqual((yield* Effect.flip(collected(page.download("k7f", "/a"))))._tag, "HttpClientError")
      assert.strictEqual(page.asked.length, 1)
    }).pipe(Effect.scoped)
  )

  it.live("an empty file is an empty stream", () =>
    Effect.gen(function* () {
      const { download } = yield* serviceOf(sends({ content: Buffer.of() }))
      assert.strictEqual((yield* collected(download("k7f", "/empty"))).length, 0)
    }).pipe(Effect.scoped)
  )
})

/** Reads a body to its end and confirms it. */
const stores =
  (into: Array<Buffer>, status = 201): Answer =>
  (request, response) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      into.push(Buffer.concat(chunks))
      response.writeHead(status, { etag: '"2"' }).end()
    })
  }

const breaks: Answer = (request) => {
  request.once("data", () => request.socket.destroy())
}

const pieces = Stream.range(0, 29).pipe(Stream.map((at) => CONTENT.subarray(at * 10_000, (at + 1) * 10_000)))

describe("spec 10.3: uploads of the client", () => {
  it.live("a stream, a Blob, bytes and a text are written with mode and conditions", () =>
    Effect.gen(function* () {
      const stored: Array<Buffer> = []
      const { asked, upload } = yield* serviceOf(stores(stored), stores(stored, 204))
      const progress: Array<TransferProgress> = []
      const onProgress = (now: TransferProgress) => progress.push(now)
      const made = yield* upload("k7f", "/a", pieces, { mode: "0755", size: 300_000, onProgress })
      assert.deepStrictEqual(made, { created: true, etag: '"2"' })
      assert.deepStrictEqual(progress.at(-1), { done: 300_000, total: 300_000 })
      const replaced = yield* upload("k7f", "/b", new Blob([CONTENT]), { ifMatch: '"1"' })
      assert.deepStrictEqual(replaced, { created: false, etag: '"2"' })
      yield* upload("k7f", "/c", CONTENT, { ifNoneMatch: "*" })
      yield* upload("k7f", "/d", "text ä")
      assert.deepStrictEqual(
        stored.map((bytes) => bytes.toString("hex")),
        [CONTENT, CONTENT, CONTENT, Buffer.from("text ä")].map((bytes) => bytes.toString("hex"))
      )
      assert.strictEqual(asked[0]?.target, "PUT /api/servers/k7f/files/content?path=%2Fa&mode=0755")
      assert.deepInclude(asked[1], { "if-match": '"1"', "content-length": "300000" })
      assert.deepInclude(asked[2], { "if-none-match": "*" })
    }).pipe(Effect.scoped)
  )

  it.live("after a break, the file is sent again from its start; with a condition it is not", () =>
    Effect.gen(function* () {
      const stored: Array<Buffer> = []
      const { asked, upload } = yield* serviceOf(breaks, breaks, stores(stored), breaks)
      yield* upload("k7f", "/a", pieces)
      assert.isTrue(stored[0]?.equals(CONTENT))
      assert.strictEqual(asked.length, 3)
      const failure = yield* Effect.flip(upload("k7f", "/a", pieces, { ifMatch: '"1"' }))
      assert.strictEqual(failure._tag, "HttpClientError")
      assert.strictEqual(asked.length, 4)
    }).pipe(Effect.scoped)
  )

  it.live("a refusal before the end of the body is its reason, and the failure of a body is its own", () =>
    Effect.gen(function* () {
      const full = refusal(507, "Insufficient Storage", "disk: 4,812 of 5,000 MB")
      const { asked, upload } = yield* serviceOf(full, stores([]))
      const failure = yield* Effect.flip(upload("k7f", "/a", pieces))
      assert.deepInclude({ ...failure }, { code: "507", detail: "disk: 4,812 of 5,000 MB" })
      assert.strictEqual(asked.length, 1)
      const broken = Stream.concat(pieces, Stream.fail("the disk of the caller"))
      assert.strictEqual(yield* Effect.flip(upload("k7f", "/a", broken)), "the disk of the caller")
    }).pipe(Effect.scoped)
  )
})

const begun = {
  id: "op1",
  kind: "files.unpack",
  server_id: "srv_1",
  state: "running",
  created_at: "2026-01-01T00:00:00.000Z"
} as const

describe("spec 10.7: archives that the client sends", () => {
  it.live("an archive is sent once, and its operation returned", () =>
    Effect.gen(function* () {
      const { asked, unpack } = yield* serviceOf((request, response) => {
        request.resume().on("end", () => {
          response.writeHead(202, { "content-type": "application/json" })
          response.end(JSON.stringify(begun))
        })
      })
      const progress: Array<TransferProgress> = []
      const made = yield* unpack("k7f", "/world ä", Stream.make(CONTENT), {
        overwrite: "replace",
        size: CONTENT.length,
        onProgress: (now) => progress.push(now)
      })
      assert.deepStrictEqual({ ...made }, { ...begun, server_id: made.server_id })
      assert.deepStrictEqual(progress, [{ done: 300_000, total: 300_000 }])
      const target = "PUT /api/servers/k7f/files/archive?path=%2Fworld+%C3%A4&overwrite=replace"
      assert.deepStrictEqual(
        asked.map((one) => one.target),
        [target]
      )
    }).pipe(Effect.scoped)
  )

  it.live("a refusal is its reason; a broken connection is not tried again", () =>
    Effect.gen(function* () {
      const refused = yield* serviceOf(refusal(422, "Unprocessable Content", "archive entry a: twice"))
      const error = yield* Effect.flip(refused.unpack("k7f", "/a", CONTENT))
      assert.deepInclude(error, { _tag: "InvalidRequest", detail: "archive entry a: twice" })
      const broken = yield* serviceOf((request) => request.socket.destroy())
      assert.strictEqual((yield* Effect.flip(broken.unpack("k7f", "/a", CONTENT)))._tag, "HttpClientError")
      assert.strictEqual(broken.asked.length, 1)
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.3: files without Effect", () => {
  it.live("a download is an async iterator, and an upload takes a function that makes its contents", () =>
    Effect.gen(function* () {
      const stored: Array<Buffer> = []
      const { url } = yield* serviceOf(sends({ breakAfter: 90_000 }), sends(), breaks, stores(stored))
      const muster = connect({ baseUrl: url, key: "k" })
      yield* Effect.promise(async () => {
        const chunks: Array<Uint8Array> = []
        for await (const chunk of muster.download("k7f", "/a")) chunks.push(chunk)
        assert.isTrue(Buffer.concat(chunks).equals(CONTENT))
        const contents = async function* () {
          yield CONTENT.subarray(0, 200_000)
          yield CONTENT.subarray(200_000)
        }
        assert.deepStrictEqual(await muster.upload("k7f", "/b", contents), { created: true, etag: '"2"' })
        assert.isTrue(stored[0]?.equals(CONTENT))
      })
    }).pipe(Effect.scoped)
  )

  it.live(
    "a refusal is a MusterError; contents that fail reject with their own error; a signal ends both",
    () =>
      Effect.gen(function* () {
        const { url } = yield* serviceOf(refusal(412, "Precondition Failed", "changed"), stores([]), () => {})
        const muster = connect({ baseUrl: url, key: "k" })
        const failureOf = (promise: Promise<unknown>) =>
          Effect.flip(Effect.tryPromise({ try: () => promise, catch: (error) => error }))
        const refused = yield* failureOf(muster.upload("k7f", "/a", "text", { ifMatch: '"1"' }))
        assert.instanceOf(refused, MusterError)
        assert.strictEqual(refused.code, "412")
        const mine = new Error("my disk")
        const failing = async function* () {
          yield CONTENT
          await Promise.reject(mine)
        }
        assert.strictEqual(yield* failureOf(muster.upload("k7f", "/a", failing)), mine)
        const controller = new AbortController()
        const reading = muster
          .download("k7f", "/a", { signal: controller.signal })
          [Symbol.asyncIterator]()
          .next()
        controller.abort("enough")
        assert.strictEqual(yield* failureOf(reading), "enough")
      }).pipe(Effect.scoped)
  )
})

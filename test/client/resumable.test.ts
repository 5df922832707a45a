import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { connect } from "../../src/client/promise.ts"
import type { TransferProgress } from "../../src/client/transfer.ts"
import { clientOf } from "./support.ts"

const CONTENT = Buffer.from(Array.from({ length: 300_000 }, (_, at) => at % 251))

const pieces = {
  size: CONTENT.length,
  bytes: (start: number, end: number) =>
    Stream.range(0, 29).pipe(
      Stream.map((at) => CONTENT.subarray(Math.max(start, at * 10_000), Math.min(end, (at + 1) * 10_000))),
      Stream.filter(({ length }) => length > 0)
    )
}

/** Happens in place of the rules to the next request that adds bytes. */
type Trouble = (request: IncomingMessage, response: ServerResponse, service: Uploads) => void

interface Uploads {
  readonly bytes: Map<string, { size: number; bytes: Buffer }>
  readonly asked: Array<string>
}

const refusal = (code: number, status: string) => (_: unknown, response: ServerResponse) => {
  response.writeHead(code, { "content-type": "application/json" })
  response.end(JSON.stringify({ code: String(code), status, detail: "no", hint: "Do it.", request_id: "r" }))
}

/** Breaks the connection once an upload has some of the bytes of a request. */
const breaksAfter =
  (count: number): Trouble =>
  (request, _, { bytes }) => {
    const upload = bytes.get(request.url?.split("/").at(-1) ?? "")
    request.once("data", (chunk: Buffer) => {
      if (upload !== undefined) upload.bytes = Buffer.concat([upload.bytes, chunk.subarray(0, count)])
      request.socket.destroy()
    })
  }

/** The response to the bytes is lost on its way. */
const losesResponse: Trouble = (request, _, { bytes }) => {
  const upload = bytes.get(request.url?.split("/").at(-1) ?? "")
  request.on("data", (chunk: Buffer) => {
    if (upload !== undefined) upload.bytes = Buffer.concat([upload.bytes, chunk])
  })
  request.on("end", () => request.socket.destroy())
}

const stateOf = ({ bytes, size }: { readonly size: number; readonly bytes: Buffer }) => ({
  path: "/ä.zip",
  size,
  offset: bytes.length,
  expires_at: "2026-01-01T00:00:00.000Z",
  ...(bytes.length === size ? { etag: '"end"' } : {})
})

const respond = (service: Uploads, troubles: Array<Trouble>) => {
  const { asked, bytes } = service
  return (request: IncomingMessage, response: ServerResponse) => {
    const { headers, method, url = "" } = request
    asked.push(`${method} ${headers["upload-offset"] ?? ""}`.trim())
    assert.strictEqual(headers["tus-resumable"], "1.0.0")
    if (method === "POST") {
      const id = `u${bytes.size + 1}`
      bytes.set(id, { size: Number(headers["upload-length"]), bytes: Buffer.of() })
      const done = headers["upload-length"] === "0" ? { etag: '"end"' } : {}
      return response.writeHead(201, { location: `${url}/${id}`, "upload-offset": "0", ...done }).end()
    }
    const id = url.split("/").at(-1) ?? ""
    const upload = bytes.get(id)
    if (upload === undefined) return refusal(404, "Not Found")(request, response)
    if (method === "DELETE") {
      bytes.delete(id)
      return response.writeHead(204).end()
    }
    if (method === "GET") {
      response.writeHead(200, { "content-type": "application/json" })
      return response.end(JSON.stringify(stateOf(upload)))
    }
    const trouble = troubles.shift()
    if (trouble !== undefined) return trouble(request, response, service)
    if (Number(headers["upload-offset"]) !== upload.bytes.length)
      return refusal(409, "Conflict")(request, response)
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    return request.on("end", () => {
      upload.bytes = Buffer.concat([upload.bytes, ...chunks])
      const { etag, offset } = stateOf(upload)
      response.writeHead(204, { "upload-offset": offset, ...(etag === undefined ? {} : { etag }) }).end()
    })
  }
}

/** A service with uploads, and its client; each trouble meets one request that adds bytes. */
const serviceOf = (...troubles: ReadonlyArray<Trouble>) =>
  Effect.gen(function* () {
    const service: Uploads = { bytes: new Map(), asked: [] }
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer(respond(service, [...troubles])).listen(0, "127.0.0.1", () =>
          resume(Effect.succeed(made))
        )
      }),
      (made) =>
        Effect.sync(() => {
          made.closeAllConnections()
          made.close()
        })
    )
    const address = server.address()
    const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`
    const stored = (id: string) => service.bytes.get(id)?.bytes.equals(CONTENT) === true
    return { ...service, url, stored, ...(yield* clientOf(url)) }
  })

describe("spec 10.8: resumable uploads of the client", () => {
  it.live("after breaks of the connection, the bytes follow that the server does not have", () =>
    Effect.gen(function* () {
      const { asked, stored, uploadResumable } = yield* serviceOf(breaksAfter(9000), breaksAfter(500))
      const begun: Array<unknown> = []
      const progress: Array<TransferProgress> = []
      const { etag } = yield* uploadResumable("k7f", "/ä.zip", pieces, {
        mode: "0755",
        onBegin: (upload) => Effect.sync(() => begun.push(upload)),
        onProgress: (now) => progress.push(now)
      })
      assert.strictEqual(etag, '"end"')
      assert.isTrue(stored("u1"))
      assert.deepStrictEqual(begun, [{ id: "u1", offset: 0 }])
      assert.deepStrictEqual(progress.at(-1), { done: 300_000, total: 300_000 })
      assert.deepStrictEqual(asked, ["POST", "PATCH 0", "GET", "PATCH 9000", "GET", "PATCH 9500"])
    }).pipe(Effect.scoped)
  )

  it.live("a Blob and bytes are uploaded too, and an empty file with one request", () =>
    Effect.gen(function* () {
      const { asked, stored, uploadResumable } = yield* serviceOf(breaksAfter(5), breaksAfter(5))
      yield* uploadResumable("k7f", "/ä.zip", new Blob([CONTENT]))
      yield* uploadResumable("k7f", "/ä.zip", CONTENT)
      assert.isTrue(stored("u1") && stored("u2"))
      asked.length = 0
      yield* uploadResumable("k7f", "/ä.zip", new Uint8Array())
      assert.deepStrictEqual(asked, ["POST"])
    }).pipe(Effect.scoped)
  )

  it.live("a response that is lost after the last byte does not send the file again", () =>
    Effect.gen(function* () {
      const { asked, uploadResumable } = yield* serviceOf(losesResponse)
      assert.deepStrictEqual(yield* uploadResumable("k7f", "/ä.zip", CONTENT), { etag: '"end"' })
      assert.deepStrictEqual(asked, ["POST", "PATCH 0", "GET"])
    }).pipe(Effect.scoped)
  )

  it.live("a later call continues an upload by its id; one of another size or a lost one begins again", () =>
    Effect.gen(function* () {
      const { asked, bytes, stored, uploadResumable } = yield* serviceOf()
      bytes.set("half", { size: 300_000, bytes: CONTENT.subarray(0, 150_000) })
      bytes.set("other", { size: 5, bytes: Buffer.from("abc") })
      const begun: Array<unknown> = []
      const onBegin = (upload: unknown) => {
        begun.push(upload)
      }
      for (const upload of ["half", "other", "lost"])
        yield* uploadResumable("k7f", "/ä.zip", pieces, { upload, onBegin })
      assert.deepStrictEqual(begun, [
        { id: "half", offset: 150_000 },
        { id: "u2", offset: 0 },
        { id: "u3", offset: 0 }
      ])
      assert.isTrue(stored("half") && stored("u2") && stored("u3"))
      assert.isFalse(bytes.has("other"))
      assert.deepStrictEqual(asked.slice(0, 6), ["GET", "PATCH 150000", "GET", "DELETE", "POST", "PATCH 0"])
    }).pipe(Effect.scoped)
  )

  it.live("after an upload that the server loses on the way, another one begins, three times at most", () =>
    Effect.gen(function* () {
      const loses: Trouble = (request, response, { bytes }) => {
        bytes.delete(request.url?.split("/").at(-1) ?? "")
        bytes.set(`gone${bytes.size}`, { size: 0, bytes: Buffer.of() })
        refusal(404, "Not Found")(request, response)
      }
      const once = yield* serviceOf(loses)
      yield* once.uploadResumable("k7f", "/ä.zip", CONTENT)
      const always = yield* serviceOf(loses, loses, loses, loses)
      const failure = yield* Effect.flip(always.uploadResumable("k7f", "/ä.zip", CONTENT))
      assert.strictEqual(failure._tag, "NotFound")
      assert.strictEqual(always.asked.filter((request) => request === "POST").length, 3)
    }).pipe(Effect.scoped)
  )

  it.live("another writer and a service that is away are waited for; a refusal ends the call at once", () =>
    Effect.gen(function* () {
      const busy = yield* serviceOf(refusal(423, "Locked"), refusal(503, "Service Unavailable"))
      yield* busy.uploadResumable("k7f", "/ä.zip", CONTENT)
      assert.isTrue(busy.stored("u1"))
      const full = yield* serviceOf(refusal(507, "Insufficient Storage"))
      const failure = yield* Effect.flip(full.uploadResumable("k7f", "/ä.zip", CONTENT))
      assert.strictEqual(failure._tag, "InsufficientStorage")
      assert.deepStrictEqual(full.asked, ["POST", "PATCH 0"])
    }).pipe(Effect.scoped)
  )

  it.live("contents that cannot be read end the call with their own failure", () =>
    Effect.gen(function* () {
      const { asked, uploadResumable } = yield* serviceOf()
      const contents = { size: 10, bytes: () => Stream.fail("the disk of the caller") }
      const failure = yield* Effect.flip(uploadResumable("k7f", "/ä.zip", contents))
      assert.strictEqual(failure, "the disk of the caller")
      assert.strictEqual(asked[0], "POST")
      assert.notInclude(asked, "GET")
    }).pipe(Effect.scoped)
  )

  it.live("a connection that takes no byte for too long is given up", () =>
    Effect.gen(function* () {
      const { asked, stored, uploadResumable } = yield* serviceOf(() => {})
      yield* uploadResumable("k7f", "/ä.zip", pieces, { silence: "100 millis" })
      assert.isTrue(stored("u1"))
      assert.deepStrictEqual(asked, ["POST", "PATCH 0", "GET", "PATCH 0"])
    }).pipe(Effect.scoped)
  )

  it.live("without Effect, a signal ends the call, and the id continues it", () =>
    Effect.gen(function* () {
      const { asked, stored, url } = yield* serviceOf()
      const muster = connect({ baseUrl: url, key: "k" })
      const parts = {
        size: CONTENT.length,
        bytes: async function* (start: number, end: number) {
          yield CONTENT.subarray(start, end)
        }
      }
      const stop = new AbortController()
      const reason = new Error("mine")
      let id = ""
      const aborted = yield* Effect.flip(
        Effect.tryPromise({
          try: () =>
            muster.uploadResumable("k7f", "/ä.zip", parts, {
              signal: stop.signal,
              onBegin: (begun) => {
                id = begun.id
                stop.abort(reason)
              }
            }),
          catch: (error) => error
        })
      )
      assert.strictEqual(aborted, reason)
      yield* Effect.promise(() => muster.uploadResumable("k7f", "/ä.zip", parts, { upload: id }))
      assert.isTrue(stored(id))
      assert.strictEqual(asked.filter((request) => request === "POST").length, 1)
    }).pipe(Effect.scoped)
  )
})

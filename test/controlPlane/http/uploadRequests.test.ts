import { createHash } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as fc from "fast-check"
import type { ErrorStatus } from "../../../src/contract/domain/ApiError.ts"
import { filesOn } from "../../support/moves.ts"
import { freshSeed } from "../../support/random.ts"
import type { Answer, Service } from "../../support/Service.ts"
import { expectStatus } from "../../support/servers.ts"
import { Far, places, scene } from "./support/files.ts"
import type { Document } from "./support/generate.ts"
import { assertError, options, service } from "./support/http.ts"
import { locationOf, temporaryFiles, uploadsOf } from "./support/tus.ts"

const REQUESTS = 120

const paths = ["/a.txt", "/deep/er/b.txt", "/c.txt"]

const isError = (status: number): status is ErrorStatus => status >= 400

const text = fc.string({ unit: "grapheme-ascii", maxLength: 30 })

/** A value of a header that Node sends, most of them without meaning. */
const junk = fc.oneof(
  fc.constantFrom(
    "",
    "-1",
    "1e3",
    "9".repeat(40),
    "null",
    "x".repeat(9000),
    "sha1 x",
    "a b c",
    "%00",
    "path"
  ),
  fc.stringMatching(/^[!-~]{1,40}$/)
)

const names = [
  "tus-resumable",
  "upload-length",
  "upload-offset",
  "upload-metadata",
  "upload-checksum",
  "content-type"
]

/** Headers that replace those of a sound request, in one of four requests. */
const broken = fc.oneof(
  { weight: 3, arbitrary: fc.constant({}) },
  { weight: 1, arbitrary: fc.dictionary(fc.constantFrom(...names), junk, { minKeys: 1, maxKeys: 2 }) }
)

const request = fc.record({
  kind: fc.constantFrom("create", "create", "patch", "patch", "patch", "patch", "find", "end"),
  /** Which upload; an unknown one now and then. */
  which: fc.nat(5),
  path: fc.constantFrom(...paths, "/", "/a.txt/x", "/../x"),
  overwrite: fc.constantFrom("replace", "replace", "fail"),
  length: fc.nat(40),
  body: text,
  shift: fc.constantFrom(0, 0, 0, 0, 1, -1),
  sum: fc.constantFrom("none", "none", "right", "wrong"),
  headers: broken
})
type Request = typeof request extends fc.Arbitrary<infer A> ? A : never

/** A request whose file is whole, so that no seed is without one. */
const whole: Request = {
  kind: "create",
  which: 0,
  path: "/a.txt",
  overwrite: "replace",
  length: 5,
  body: "whole",
  shift: 0,
  sum: "none",
  headers: {}
}

const checksum = ({ body, sum }: Request) => {
  if (sum === "none") return {}
  const digest = createHash("sha1").update(sum === "right" ? body : `${body}!`)
  return { "upload-checksum": `sha1 ${digest.digest("base64")}` }
}

/** An unfinished upload, with the bytes that the service has. */
interface Known {
  readonly location: string
  readonly size: number
  readonly bytes: string
}

const route = "/api/servers/{server}/files/uploads"

/** Sends requests, one after another, and follows what the service must have of each upload. */
const makeClient = Effect.fnUntraced(function* (api: Service, id: string) {
  const document: Document = (yield* expectStatus(api, 200, "GET", "/openapi.json")).json
  const { base, create, end, patch } = uploadsOf(api, id)
  const uploads: Array<Known> = []
  const files = new Map<string, string>()
  const unknown: Known = { location: `${base}/${"x".repeat(32)}`, size: 10, bytes: "" }

  const check = (answer: Answer, path: string, method: string) => {
    const documented = Object.keys(document.paths[path]?.[method]?.responses ?? {}).map(Number)
    // Any route refuses headers of more than 16 KiB, which two long ones have together.
    assert.include([...documented, 431], answer.status, answer.text)
    if (isError(answer.status)) assertError(answer, answer.status)
  }

  /** Looks at an upload whose bytes begin with `known` and continue with some of `body`. */
  const follow = Effect.fnUntraced(function* (location: string, known: string, body: string) {
    const { json, status } = yield* api.request("GET", location)
    if (status === 404) return
    if (status === 409) {
      // All bytes have arrived, and a file is where its folder should be: the upload can be ended.
      return assert.strictEqual((yield* end(location)).status, 204)
    }
    assert.strictEqual(status, 200)
    assert.isAtLeast(json.offset, known.length)
    const bytes = `${known}${body}`.slice(0, json.offset)
    assert.strictEqual(bytes.length, json.offset, "the service has bytes that were not sent")
    if (json.etag === undefined) return void uploads.push({ location, size: json.size, bytes })
    assert.strictEqual(json.size, bytes.length)
    files.set(json.path, bytes)
  })

  const send = Effect.fnUntraced(function* (request: Request) {
    const { body, headers, kind, length, overwrite, path, shift, which } = request
    const given = { ...checksum(request), ...headers }
    if (kind === "create") {
      const made = yield* create({ path, overwrite }, length, given, body)
      check(made, route, "post")
      if (made.status === 201) yield* follow(locationOf(made), "", body)
      return
    }
    const [upload = unknown] = which === 0 ? [] : uploads.splice(which - 1, 1)
    const { bytes, location } = upload
    const at = `${route}/{upload}`
    if (kind === "patch") check(yield* patch(location, bytes.length + shift, body, given), at, "patch")
    else if (kind === "end") check(yield* end(location), at, "delete")
    else check(yield* api.request("GET", location, { headers }), at, "get")
    yield* follow(location, bytes, kind === "patch" ? body : "")
  })

  /** Sends the rest of each upload, and ends the uploads that another file keeps from their place. */
  const finish = Effect.suspend(() =>
    Effect.forEach(
      uploads.splice(0),
      Effect.fnUntraced(function* ({ bytes, location, size }) {
        const rest = "z".repeat(size - bytes.length)
        check(yield* patch(location, bytes.length, rest), `${route}/{upload}`, "patch")
        yield* follow(location, bytes, rest)
      })
    )
  ).pipe(
    Effect.andThen(
      Effect.suspend(() =>
        Effect.forEach(uploads, ({ location }) => Effect.map(end(location), ({ status }) => status))
      )
    )
  )
  return { send, files, finish }
})

layer(Layer.provideMerge(Far.layer, service()), options)("arbitrary requests to uploads", (it) => {
  describe("spec 10.8: property: any requests in any order", () => {
    it.effect.each(places)(
      "%s: have documented statuses and error bodies; files are whole, and nothing else is left",
      (place) =>
        Effect.gen(function* () {
          const { api, files: routes, id } = yield* scene(place)
          const { dataDir } = place === "remote" ? yield* Far : api
          const { files, finish, send } = yield* makeClient(api, id)
          const seed = freshSeed()
          yield* Effect.forEach([whole, ...fc.sample(request, { numRuns: REQUESTS, seed })], send, {
            discard: true
          }).pipe(Effect.catchCause((cause) => Effect.die(new Error(`seed ${seed}\n${cause}`))))
          for (const status of yield* finish) assert.strictEqual(status, 204)
          assert.isAbove(files.size, 0, `seed ${seed}`)
          for (const path of paths) {
            const { status, text } = yield* routes.get(path)
            // 409: an upload below it has made it a folder.
            assert.include(files.has(path) ? [200] : [404, 409], status)
            if (status === 200) assert.strictEqual(text, files.get(path))
          }
          assert.deepStrictEqual(temporaryFiles(filesOn({ dataDir }, id, "")), [])
          assert.notMatch(api.output(), /ERROR/)
        })
    )
  })
})

import { createServer, type ServerResponse } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { makeTargets } from "../../../src/daemon/backups/targets.ts"
import { listening } from "../../support/s3Server.ts"

const access = {
  ...{ access_key_id: "key", secret_access_key: "secret", region: "eu-west-1", bucket: "backups" },
  ...{ path_style: true, allow_private: true }
}

/** Starts a bucket that answers each request as told, and returns it as a target. */
const bucketWith = Effect.fnUntraced(function* (answer: (url: string, response: ServerResponse) => void) {
  const server = createServer(({ url = "" }, response) => answer(url, response))
  const endpoint = yield* listening(server)
  const { of } = yield* makeTargets({ own: "none", allowed: [], reserve: 0 })
  return yield* of({ type: "s3", endpoint, ...access })
})

const listWith = (objects: ReadonlyArray<string>, next?: string) =>
  [
    "<ListBucketResult>",
    ...objects.map(
      (key) => `<Contents><Key>${key}</Key><LastModified>2026-05-01T00:00:00Z</LastModified></Contents>`
    ),
    next === undefined
      ? ""
      : `<IsTruncated>true</IsTruncated><NextContinuationToken>${next}</NextContinuationToken>`,
    "</ListBucketResult>"
  ].join("")

describe("spec 12.6: the list of a bucket that is not trusted", () => {
  it.effect("a page that does not end fails, and holds up no other backup", () =>
    Effect.gen(function* () {
      let asked = 0
      const target = yield* bucketWith((_, response) => {
        asked += 1
        response.writeHead(200).write("<ListBucketResult>")
      })
      const fiber = yield* Effect.forkChild(Effect.flip(target.list))
      const minute = Effect.andThen(
        Effect.promise(() => new Promise(setImmediate)),
        Effect.suspend(() => (asked === 0 ? Effect.void : TestClock.adjust("1 minute")))
      )
      yield* Effect.repeat(minute, { until: () => fiber.pollUnsafe() !== undefined })
      const { message } = yield* Fiber.join(fiber)
      // The beginning of the response may arrive after five of these minutes.
      assert.match(message, /^list bucket backups: (a page did not end within 60 s|no response)/)
    }).pipe(Effect.scoped)
  )

  it.live("a list without an end, and a page with too many objects, fail: they are never cut off", () =>
    Effect.gen(function* () {
      const loop = yield* bucketWith((_, response) => void response.end(listWith([], "again")))
      assert.strictEqual(
        (yield* Effect.flip(loop.list)).message,
        "list bucket backups: a page names itself as the next one"
      )
      const keys = Array.from({ length: 1_001 }, (_, n) => `aaaaaaaaaaaa/part-${String(n).padStart(5, "0")}`)
      const large = yield* bucketWith((_, response) => void response.end(listWith(keys)))
      assert.strictEqual(
        (yield* Effect.flip(large.list)).message,
        "list bucket backups: a page has more than 1000 objects"
      )
      let page = 0
      const endless = yield* bucketWith((_, response) => {
        page += 1
        response.end(listWith([], String(page)))
      })
      assert.strictEqual(
        (yield* Effect.flip(endless.list)).message,
        "list bucket backups: it has more than 2000 pages"
      )
    }).pipe(Effect.scoped)
  )

  it.live("pages are read to the last one", () =>
    Effect.gen(function* () {
      const target = yield* bucketWith((url, response) => {
        const at = Number(/continuation-token=(\d)/.exec(url)?.[1] ?? 0)
        response.end(listWith([`aaaaaaaaaaa${at}/manifest.json`], at < 2 ? String(at + 1) : undefined))
      })
      const found = (yield* target.list).map(({ id, objects }) => [id, ...objects.keys()])
      assert.deepStrictEqual(
        found,
        [0, 1, 2].map((at) => [`aaaaaaaaaaa${at}`, "manifest.json"])
      )
    }).pipe(Effect.scoped)
  )
})

describe("spec 12.6: an object of which a bucket sends one byte each few seconds", () =>
  it.effect("fails with the bytes that came, and holds up no other backup", () =>
    Effect.gen(function* () {
      let current: ServerResponse | undefined
      let sent = 0
      const target = yield* bucketWith((_, response) => {
        current = response
        response.writeHead(sent === 0 ? 200 : 206, { "content-length": 1_000_000 })
      })
      const reading = Effect.flip(Stream.runDrain(target.read("aaaaaaaaaaaa/part-00001")))
      const fiber = yield* Effect.forkChild(reading)
      const turn = Effect.promise(() => new Promise(setImmediate))
      const drip = Effect.gen(function* () {
        const isOpen = current !== undefined && !current.destroyed
        if (isOpen) sent += 1
        if (isOpen) current?.write("x")
        yield* Effect.repeat(turn, { times: 2 })
        if (isOpen) yield* TestClock.adjust("5 seconds")
      })
      const ended = () => fiber.pollUnsafe() !== undefined
      yield* Effect.repeat(drip, { until: () => ended() || sent > 1_000 })
      assert.isTrue(ended())
      assert.match((yield* Fiber.join(fiber)).message, /: it sent 1\d bytes in 60 s, and 3\.4 MB are needed$/)
    }).pipe(Effect.scoped)
  ))

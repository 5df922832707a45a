/** The promises of the facade are awaited as a caller without Effect does. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { type Change, connect, MusterError, type Reset, ServerId } from "../../src/client/promise.ts"
import { options, service } from "../controlPlane/http/support/http.ts"
import { Muster } from "../support/Muster.ts"

/** Runs the code of a caller without Effect. */
const withClient = (use: (muster: ReturnType<typeof connect>, baseUrl: string) => Promise<void>) =>
  Effect.flatMap(Muster, (api) =>
    Effect.promise(() => use(connect({ baseUrl: api.url, key: api.key }), api.url))
  )

const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error) => error
  )

layer(service(), options)("the client without Effect", (it) => {
  it.effect("calls, follow, waitUntil and console are promises and async iterators", () =>
    withClient(async (muster) => {
      const { cursor } = await muster.list()
      const server = await muster.servers.create({ payload: { blueprint_id: "kept", start: true } })
      const seen: Array<unknown> = []
      for await (const change of muster.follow({ from: cursor, servers: [server.id] })) {
        if (change.topic === "status") seen.push(change.payload)
        if (change.topic === "status" && change.payload === "running") break
      }
      assert.deepStrictEqual(seen, ["installing", "offline", "starting", "running"])
      assert.strictEqual((await muster.waitUntil(server.id, "running")).status, "running")
      const console = await muster.console(server.id)
      await console.send("say hi")
      for await (const line of console.lines) {
        if (line === "got say hi") break
      }
      await console.close()
      await muster.servers.power({ params: { server: server.id }, payload: { action: "kill" } })
      await muster.waitUntil(server.id, "offline")
      await muster.servers.remove({ params: { server: server.id } })
      assert.deepStrictEqual((await muster.list()).servers, [])
      assert.deepStrictEqual(await muster.healthz(), { status: "ok" })
    })
  )

  it.effect("errors are of one class, with the fields of the error body", () =>
    withClient(async (muster, baseUrl) => {
      const missing = await failureOf(muster.servers.get({ params: { server: ServerId.make("nope") } }))
      assert.instanceOf(missing, MusterError)
      const { code, detail, hint, message, requestId, status } = missing
      assert.deepStrictEqual(
        [code, status, detail, message],
        ["404", "Not Found", "server not found: nope", detail]
      )
      assert.isNotEmpty(hint)
      assert.isNotEmpty(requestId)
      const refused = await failureOf(connect({ baseUrl, key: "wrong" }).list())
      assert.instanceOf(refused, MusterError)
      assert.strictEqual(refused.code, "401")
      const name = "x".repeat(65)
      const invalid = await failureOf(muster.servers.create({ payload: { blueprint_id: "kept", name } }))
      assert.instanceOf(invalid, MusterError)
      assert.strictEqual(invalid.code, "422")
      assert.match(invalid.detail, /^body field name: Expected /)
      const nowhere = await failureOf(connect({ baseUrl: "http://127.0.0.1:1", key: "k" }).system.info())
      assert.instanceOf(nowhere, MusterError)
      assert.strictEqual(nowhere.code, "unreachable")
      const elements: Array<Change | Reset> = []
      const following = async () => {
        for await (const element of connect({ baseUrl, key: "wrong" }).follow()) elements.push(element)
      }
      const ended = await failureOf(following())
      assert.instanceOf(ended, MusterError)
      assert.strictEqual(ended.code, "401")
    })
  )

  it.effect("an AbortSignal ends a call, a wait, a loop and a console with its reason", () =>
    withClient(async (muster) => {
      const { id } = await muster.servers.create({ payload: { blueprint_id: "endless" } })
      const reason = new Error("enough")
      const aborting = (use: (signal: AbortSignal) => Promise<unknown>) => {
        const controller = new AbortController()
        const failure = failureOf(use(controller.signal))
        controller.abort(reason)
        return failure
      }
      assert.strictEqual(await aborting((signal) => muster.system.info({}, { signal })), reason)
      assert.strictEqual(await aborting((signal) => muster.waitUntil(id, "running", { signal })), reason)
      assert.strictEqual(
        await aborting(async (signal) => {
          for await (const element of muster.follow({ from: "now", signal })) assert.fail(element.topic)
        }),
        reason
      )
      const controller = new AbortController()
      const kept = await muster.servers.create({ payload: { blueprint_id: "kept" } })
      await muster.waitUntil(kept.id, "installed")
      const console = await muster.console(kept.id, { signal: controller.signal })
      const reading = failureOf(
        (async () => {
          for await (const line of console.lines) void line
        })()
      )
      controller.abort(reason)
      assert.strictEqual(await reading, reason)
      await muster.servers.removeMany({ payload: { selector: { ids: [id, kept.id] }, force: true } })
    })
  )
})

import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Queue, Stream } from "effect"
import type { MusterClient } from "../../src/client/index.ts"
import { ServerId } from "../../src/contract/domain/Id.ts"
import { options, removed, service } from "../controlPlane/http/support/http.ts"
import { during, tcpProxy } from "../support/faults/index.ts"
import { Muster } from "../support/Muster.ts"
import { becomes, commands, logsHave, powered, running } from "../support/servers.ts"
import { clientOf } from "./support.ts"

/** A console whose lines can be awaited. */
const opened = Effect.fnUntraced(function* (muster: MusterClient["Service"], id: string) {
  const console = yield* muster.console(id)
  const lines = yield* Queue.unbounded<string>()
  const times = new Map<string, string>()
  const reading = yield* Effect.forkScoped(
    Stream.runForEach(console.timedLines, ({ at, text }) => {
      if (at !== null) times.set(text, at)
      return Queue.offer(lines, text)
    })
  )
  const seen: Array<string> = []
  const take = Effect.tap(Queue.take(lines), (line) => Effect.sync(() => seen.push(line)))
  const prints = (wanted: string) => Effect.repeat(take, { until: (line) => line === wanted })
  return { ...console, prints, reading, seen, times }
})

layer(service(), options)("the client: console", (it) => {
  it.effect(
    "lines arrive, and sent lines are commands, also after a cut connection, without a gap and once",
    () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const proxy = yield* tcpProxy(Number(new URL(api.url).port))
        const muster = yield* clientOf(proxy.through(api.url), api.key)
        const id = yield* running(api, "kept")
        const { prints, seen, send, times } = yield* opened(muster, id)
        yield* send("say one")
        yield* prints("got say one")
        yield* during(
          proxy.dropped,
          Effect.gen(function* () {
            yield* commands(api, id, "say away")
            yield* logsHave(api, id, "got say away")
          })
        )
        const sent = Effect.andThen(send("say two"), Effect.timeoutOption(prints("got say two"), "1 second"))
        yield* Effect.repeat(sent, { until: (printed) => printed._tag === "Some" })
        assert.deepStrictEqual(
          seen.filter((line) => line === "got say away"),
          ["got say away"]
        )
        // The client has received this line later than it was written.
        const { data, times: stored } = yield* muster.servers.logs({
          params: { server: ServerId.make(id) },
          query: { include: "times" }
        })
        assert.isDefined(times.get("got say away"))
        assert.strictEqual(stored?.[data.indexOf("got say away")], times.get("got say away"))
        yield* removed(id)
      })
  )

  it.effect("the lines end when the server is deleted; later lines are NotFound", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const muster = yield* clientOf(api.url, api.key)
      const id = yield* running(api, "kept")
      const { reading, send } = yield* opened(muster, id)
      yield* powered(api, id, "stop")
      yield* becomes(api, id, "offline")
      yield* removed(id)
      yield* Fiber.join(reading)
      assert.strictEqual((yield* Effect.flip(send("say late")))._tag, "NotFound")
    })
  )

  it.effect("a console that cannot be opened is a failure of the contract", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const muster = yield* clientOf(api.url, api.key)
      assert.strictEqual((yield* Effect.flip(muster.console("nope")))._tag, "NotFound")
      const wrong = yield* clientOf(api.url, "wrong")
      assert.strictEqual((yield* Effect.flip(wrong.console("nope")))._tag, "Unauthorized")
    })
  )
})

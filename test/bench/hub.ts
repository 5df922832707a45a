/**
 * The streams of the service over a store in SQLite: `node hub.ts <file of the database> <events a second>`. Each event is
 * a write, and its reason the time of the write in milliseconds since the epoch. Each millisecond, as many are written
 * as are due.
 */
import { NodeRuntime, NodeServices } from "@effect/platform-node"
import { Array as Arr, Effect, Layer, Schedule } from "effect"
import { ServerId } from "../../src/contract/domain/Id.ts"
import { LiveFeed, ServerSummaries } from "../../src/controlPlane/events/LiveFeed.ts"
import { layerSqlite } from "../../src/controlPlane/store/layers/layerDatabase.ts"
import { Store, Transaction } from "../../src/controlPlane/store/Store.ts"
import { streamServerOfJournal, TestServer } from "../controlPlane/events/streamServer.ts"

const [, , filename = "", rate = "0"] = process.argv
const began = performance.now()
let written = 0

const now = () => performance.timeOrigin + performance.now()

const writeEvent = Effect.gen(function* () {
  const { append } = yield* Transaction
  const payload = { reason: now().toFixed(2), exit_code: 1, timestamp: "2026-01-01T00:00:00Z" }
  yield* append({ topic: "crash", server_id: ServerId.make("srv_1"), payload }, { blueprint_id: "bp" })
})

const writeDue = Effect.gen(function* () {
  const store = yield* Store
  const due = Math.floor(((performance.now() - began) * Number(rate)) / 1000) - written
  written += due
  if (due === 0) return
  const write = store.write(writeEvent)
  yield* Effect.forEach(Arr.replicate(write, due), (one) => Effect.forkScoped(one), { discard: true })
})

const main = Effect.gen(function* () {
  const { port } = yield* TestServer
  console.log(`listens on http://127.0.0.1:${port}`)
  yield* rate === "0" ? Effect.never : Effect.repeat(writeDue, Schedule.fixed(1))
}).pipe(Effect.scoped)

const summaries = Layer.succeed(ServerSummaries, {
  find: () => undefined,
  facts: () => undefined,
  nameOf: () => undefined
})
const journal = layerSqlite({ filename, isService: true }).pipe(Layer.provide(NodeServices.layer))

NodeRuntime.runMain(
  Effect.provide(
    main,
    streamServerOfJournal().pipe(
      Layer.provide([summaries, LiveFeed.layer]),
      Layer.provideMerge(journal),
      Layer.orDie
    )
  )
)

/**
 * The streams of the service over a journal in memory: `node memoryHub.ts <events a second>`. Events are published every
 * millisecond, as many as are due.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Effect, Layer, Schedule } from "effect"
import { MemoryJournal } from "../controlPlane/events/MemoryJournal.ts"
import { streamServer, TestServer } from "../controlPlane/events/streamServer.ts"

const rate = Number(process.argv[2])
const began = performance.now()
let published = 0

const publish = Effect.gen(function* () {
  const journal = yield* MemoryJournal
  const due = Math.floor(((performance.now() - began) * rate) / 1000) - published
  if (due === 0) return
  published += due
  const payload = { reason: performance.now().toFixed(2), exit_code: 1, timestamp: "2026-01-01T00:00:00Z" }
  yield* journal.append(Array.from({ length: due }, () => ({ topic: "crash", server_id: "srv_1", payload })))
})

const main = Effect.gen(function* () {
  const { port } = yield* TestServer
  console.log(`listens on http://127.0.0.1:${port}`)
  yield* Effect.repeat(publish, Schedule.fixed(1))
})

NodeRuntime.runMain(Effect.provide(main, streamServer().pipe(Layer.orDie)))

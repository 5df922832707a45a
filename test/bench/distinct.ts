/**
 * 10,000 servers with overrides of their own: how long other requests wait during the first list that compares them with
 * today's definitions, and during the creation of a rollout.
 */
import { join } from "node:path"
import { Effect, Fiber } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, print } from "./harness.ts"
import { seedServers } from "./seed.ts"

const SERVERS = 10_000
const baseline = "the longest of the same requests while the service does nothing else"
const PAUSE_MILLIS = 1_000

const files = {
  software: {
    "game.yml": softwareFile("game", { install: { script: "# a line of a script\n".repeat(100) } })
  },
  blueprints: { "game.yml": blueprintFile("game", "game") }
}

/** Repeats a request until `work` is done; returns its longest time in ms. */
const longestDuring = Effect.fnUntraced(function* <A, E, B, E2>(
  work: Effect.Effect<A, E>,
  request: Effect.Effect<B, E2>
) {
  let longest = 0
  const timed = Effect.gen(function* () {
    const began = performance.now()
    yield* request
    longest = Math.max(longest, performance.now() - began)
  })
  const fiber = yield* Effect.forkChild(work)
  // A request that waits for the end of the work counts, too.
  while (fiber.pollUnsafe() === undefined) yield* timed
  yield* Fiber.join(fiber)
  return longest
})

export const distinct = Effect.gen(function* () {
  const dataDir = join(yield* temporaryFolder, "data")
  const { env } = yield* definitions(files)
  const [id = ""] = yield* seedServers(dataDir, SERVERS, {
    known: true,
    own: (n) => ({ blueprint_id: "game", overrides: { env: { NUMBER: String(n) } } })
  })
  const service = yield* startService({ dataDir, env: { ...env, MUSTER_EMBEDDED_NODE: "false" } })
  const ask = Effect.fnUntraced(function* (method: string, path: string, status: number, body?: unknown) {
    const answer = yield* service.request(method, path, body === undefined ? {} : { body })
    if (answer.status === status) return
    return yield* new BenchFailed({ message: `${method} ${path} is ${answer.status}: ${answer.text}` })
  })
  const read = ask("GET", `/api/servers/${id}`, 200)
  let written = 0
  const write = Effect.suspend(() =>
    ask("PATCH", `/api/servers/${id}`, 200, { labels: { n: String(++written) } })
  )
  const measure = Effect.fnUntraced(function* (
    figure: string,
    work: Effect.Effect<void, BenchFailed | { readonly message: string }>,
    request: typeof read
  ) {
    const baseline_value = yield* longestDuring(Effect.sleep(PAUSE_MILLIS), request)
    const value = yield* longestDuring(work, request)
    yield* print({ bench: "distinct", figure, value, unit: "ms", baseline, baseline_value })
  })
  yield* ask("GET", "/api/servers", 200)
  yield* ask("POST", "/api/blueprints/reload", 200)
  const list = ask("GET", "/api/servers?include=definition", 200)
  yield* measure("longest GET during the first list with include=definition after a reload", list, read)
  const selector = { blueprint_id: "game" }
  const rollout = ask("POST", "/api/rollouts", 201, { selector, restart: "when_stopped" })
  yield* measure("longest PATCH during the creation of a rollout", rollout, write)
}).pipe(Effect.scoped)

/**
 * Reads of one server and of 1,000, against a bare server that serialises the same JSON for each request. The CPU time of
 * a read of one server has a second baseline, a plain `HttpApi` with this route.
 */

import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { muster } from "../support/command.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { cpuMicros, interleaved, median, print, startBare, startBareApi } from "./harness.ts"
import { type LoadResult, load } from "./load.ts"
import { seedServers } from "./seed.ts"

const SERVERS = 1_000
const CONNECTIONS = 32
const ROUNDS = 5
const MILLIS = 1_000

const baseline = "bare node:http, JSON.stringify for each request"
const apiBaseline = "bare HttpApi, body encoded before"

interface Target {
  readonly url: string
  readonly pid: number
}

interface Measured extends LoadResult {
  /** CPU time of the server's process for each request, in microseconds. */
  readonly cpu: number
}

export const reads = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const dataDir = join(folder, "data")
  const ids = yield* seedServers(dataDir, SERVERS, { known: true })
  const started = yield* startService({ dataDir, env: { MUSTER_EMBEDDED_NODE: "false" } })
  const service = { url: started.url, pid: started.process.pid ?? 0 }
  // A key in the database, as clients have; the key of the environment needs no look-up.
  const made = yield* muster(["keys", "create", "--name", "bench"], { MUSTER_DATA_DIR: dataDir })
  const key = made.stdout.trim()
  const servers = yield* started.request("GET", "/api/servers")
  const file = join(folder, "servers.json")
  writeFileSync(file, servers.text)
  const bare = yield* startBare("reads", file)
  const bareApi = yield* startBareApi(file)

  const run = (pathOf: (n: number) => string) =>
    Effect.fnUntraced(function* ({ pid, url }: Target) {
      const before = yield* cpuMicros(pid)
      const result = yield* load({
        url,
        key,
        connections: CONNECTIONS,
        millis: MILLIS,
        status: 200,
        request: (n) => ({ method: "GET", path: pathOf(n) })
      })
      const cpu = ((yield* cpuMicros(pid)) - before) / result.requests
      return { ...result, cpu } satisfies Measured
    })

  const measure = Effect.fnUntraced(function* (name: string, pathOf: (n: number) => string) {
    const of = run(pathOf)
    yield* interleaved(1, of(service), of(bare))
    const { subjects, baselines } = yield* interleaved(ROUNDS, of(service), of(bare))
    const figure = (figure: string, unit: string, pick: (result: Measured) => number) =>
      print({
        bench: "reads",
        figure: `${name} ${figure}`,
        value: median(subjects.map(pick)),
        unit,
        baseline,
        baseline_value: median(baselines.map(pick))
      })
    yield* figure("throughput", "requests/s", (result) => result.perSecond)
    yield* figure("CPU time", "µs/request", (result) => result.cpu)
    yield* figure(`p50 at ${CONNECTIONS} connections`, "ms", (result) => result.p50)
    yield* figure(`p99 at ${CONNECTIONS} connections`, "ms", (result) => result.p99)
  })

  const pathOfOne = (n: number) => `/api/servers/${ids[n % ids.length]}`
  yield* measure("one server", pathOfOne)
  const one = run(pathOfOne)
  yield* interleaved(1, one(service), one(bareApi))
  const { subjects, baselines } = yield* interleaved(ROUNDS, one(service), one(bareApi))
  yield* print({
    bench: "reads",
    figure: "one server CPU time",
    value: median(subjects.map(({ cpu }) => cpu)),
    unit: "µs/request",
    baseline: apiBaseline,
    baseline_value: median(baselines.map(({ cpu }) => cpu))
  })
  yield* measure("1,000 servers", () => "/api/servers")
}).pipe(Effect.scoped)

/** Reads of one server and of 1,000, against a bare server that serialises the same JSON for each request. */

import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { muster } from "../support/command.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { interleaved, median, print, startBare } from "./harness.ts"
import { type LoadResult, load } from "./load.ts"
import { seedServers } from "./seed.ts"

const SERVERS = 1_000
const CONNECTIONS = 32
const ROUNDS = 5
const MILLIS = 1_000

const baseline = "bare node:http, JSON.stringify for each request"

export const reads = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const dataDir = join(folder, "data")
  const ids = yield* seedServers(dataDir, SERVERS, { known: true })
  const service = yield* startService({ dataDir, env: { MUSTER_EMBEDDED_NODE: "false" } })
  // A key in the database, as clients have; the key of the environment needs no look-up.
  const made = yield* muster(["keys", "create", "--name", "bench"], { MUSTER_DATA_DIR: dataDir })
  const key = made.stdout.trim()
  const servers = yield* service.request("GET", "/api/servers")
  const file = join(folder, "servers.json")
  writeFileSync(file, servers.text)
  const bare = yield* startBare("reads", file)

  const measure = Effect.fnUntraced(function* (name: string, pathOf: (n: number) => string) {
    const run = (url: string) =>
      load({
        url,
        key,
        connections: CONNECTIONS,
        millis: MILLIS,
        status: 200,
        request: (n) => ({ method: "GET", path: pathOf(n) })
      })
    yield* interleaved(1, run(service.url), run(bare.url))
    const { subjects, baselines } = yield* interleaved(ROUNDS, run(service.url), run(bare.url))
    const figure = (figure: string, unit: string, pick: (result: LoadResult) => number) =>
      print({
        bench: "reads",
        figure: `${name} ${figure}`,
        value: median(subjects.map(pick)),
        unit,
        baseline,
        baseline_value: median(baselines.map(pick))
      })
    yield* figure("throughput", "requests/s", (result) => result.perSecond)
    yield* figure(`p50 at ${CONNECTIONS} connections`, "ms", (result) => result.p50)
    yield* figure(`p99 at ${CONNECTIONS} connections`, "ms", (result) => result.p99)
  })

  yield* measure("one server", (n) => `/api/servers/${ids[n % ids.length]}`)
  yield* measure("1,000 servers", () => "/api/servers")
}).pipe(Effect.scoped)

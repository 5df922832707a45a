/** Creation of servers on the embedded node, against commits of single rows to a SQLite file in the same folder. */
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Console, Effect, Option } from "effect"
import { type Service, startService, temporaryFolder } from "../support/Service.ts"
import { BenchFailed, interleaved, median, poll, print } from "./harness.ts"
import { load } from "./load.ts"

const CREATIONS = 100
const CONNECTIONS = 32
const ROUNDS = 3
const COMMITS = 200
const baseline = "plain SQLite, one row for each commit, synchronous=FULL"

const body = JSON.stringify({ blueprint_id: "demo", overrides: { save: true } })

/** Commits of single rows a second, one by one. */
const commitsPerSecond = (folder: string) =>
  Effect.acquireUseRelease(
    Effect.sync(() => new DatabaseSync(join(folder, "plain.db"))),
    (database) =>
      Effect.sync(() => {
        database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        database.exec("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        const insert = database.prepare("INSERT INTO rows (body) VALUES (?)")
        const began = performance.now()
        for (let n = 0; n < COMMITS; n++) insert.run(body)
        return (COMMITS * 1000) / (performance.now() - began)
      }),
    (database) => Effect.sync(() => database.close())
  )

const commitsOf = Effect.fnUntraced(function* (service: Service) {
  const { text } = yield* service.request("GET", "/metrics")
  const commits = /^muster_store_commits(?:_total)?(?:\{[^}]*\})? (\d+)/m.exec(text)?.[1]
  if (commits === undefined)
    return yield* new BenchFailed({ message: "/metrics has no muster_store_commits" })
  return Number(commits)
})

/** Waits until every server is installed: a round does not begin in the work of the one before. */
const allInstalled = (service: Service) =>
  poll(
    "all servers are installed",
    Effect.map(service.request("GET", "/api/servers?include=status"), ({ text }) =>
      text.includes('"status":"installing"') ? undefined : true
    ),
    { every: 50, seconds: 60 }
  )

const createSome = Effect.fnUntraced(function* (service: Service) {
  const before = yield* commitsOf(service)
  const { perSecond } = yield* load({
    url: service.url,
    key: service.key,
    connections: CONNECTIONS,
    requests: CREATIONS,
    status: 202,
    request: () => ({ method: "POST", path: "/api/servers", body })
  })
  const acknowledged = yield* commitsOf(service)
  yield* allInstalled(service)
  const installed = yield* commitsOf(service)
  return {
    perSecond,
    commits: (acknowledged - before) / CREATIONS,
    commitsInAll: (installed - before) / CREATIONS
  }
})

export const creates = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const service = yield* startService({
    dataDir: join(folder, "data"),
    env: {
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-59999",
      MUSTER_OVERCOMMIT_MEMORY: "1000",
      MUSTER_OVERCOMMIT_DISK: "1000"
    }
  })
  const node = yield* poll(
    "the embedded node registers",
    Effect.map(service.request("GET", "/api/nodes?ids_only=true"), ({ text }) =>
      text === "[]" ? undefined : text
    ),
    { seconds: 10 }
  ).pipe(Effect.option)
  if (Option.isNone(node))
    return yield* Console.error("creates: not measured, the service has no embedded node")

  const subject = createSome(service)
  const plain = commitsPerSecond(folder)
  yield* interleaved(1, subject, plain)
  const { subjects, baselines } = yield* interleaved(ROUNDS, subject, plain)
  yield* print({
    bench: "creates",
    figure: `acknowledged from ${CONNECTIONS} connections`,
    value: median(subjects.map((round) => round.perSecond)),
    unit: "servers/s",
    baseline,
    baseline_value: median(baselines)
  })
  const commits = (figure: string, value: number) =>
    print({ bench: "creates", figure, value, unit: "commits/server", baseline, baseline_value: 1 })
  yield* commits("commits until acknowledged", median(subjects.map((round) => round.commits)))
  yield* commits("commits until installed", median(subjects.map((round) => round.commitsInAll)))
}).pipe(Effect.scoped)

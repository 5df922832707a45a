/**
 * Creation of servers on the embedded node, against commits of single rows: to a SQLite file in the same folder, and to
 * the same PostgreSQL.
 */
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { PgConnection } from "@effect/sql-pg"
import { Console, Effect, Option, Redacted } from "effect"
import { startPostgres } from "../support/postgres.ts"
import { type Service, startService, temporaryFolder } from "../support/Service.ts"
import { BenchFailed, interleaved, median, poll, print } from "./harness.ts"
import { load } from "./load.ts"

const CREATIONS = 100
const CONNECTIONS = 32
const ROUNDS = 3
const COMMITS = 200

/** A database, what a commit to it is called, and how many of single rows it takes. */
interface Subject {
  readonly suffix: string
  readonly baseline: string
  readonly env: Record<string, string>
  readonly commitsPerSecond: Effect.Effect<number, BenchFailed>
}

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

const measure = Effect.fnUntraced(function* (
  dataDir: string,
  { baseline, commitsPerSecond, env, suffix }: Subject
) {
  const service = yield* startService({
    dataDir,
    env: {
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-59999",
      MUSTER_OVERCOMMIT_MEMORY: "1000",
      MUSTER_OVERCOMMIT_DISK: "1000",
      ...env
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
  yield* interleaved(1, subject, commitsPerSecond)
  const { subjects, baselines } = yield* interleaved(ROUNDS, subject, commitsPerSecond)
  yield* print({
    bench: "creates",
    figure: `acknowledged from ${CONNECTIONS} connections${suffix}`,
    value: median(subjects.map((round) => round.perSecond)),
    unit: "servers/s",
    baseline,
    baseline_value: median(baselines)
  })
  const commits = (figure: string, value: number) =>
    print({
      bench: "creates",
      figure: `${figure}${suffix}`,
      value,
      unit: "commits/server",
      baseline,
      baseline_value: 1
    })
  yield* commits("commits until acknowledged", median(subjects.map((round) => round.commits)))
  yield* commits("commits until installed", median(subjects.map((round) => round.commitsInAll)))
}, Effect.scoped)

/** Commits of single rows a second on one connection. */
const postgresCommitsPerSecond = (url: string) =>
  Effect.gen(function* () {
    const connection = yield* PgConnection.make({ url: Redacted.make(url) })
    yield* connection.query("CREATE TABLE IF NOT EXISTS plain (id SERIAL PRIMARY KEY, body TEXT NOT NULL)")
    const began = performance.now()
    for (let n = 0; n < COMMITS; n++) yield* connection.query("INSERT INTO plain (body) VALUES ($1)", [body])
    return (COMMITS * 1000) / (performance.now() - began)
  }).pipe(
    Effect.scoped,
    Effect.mapError((error) => new BenchFailed({ message: error.message }))
  )

export const creates = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  yield* measure(join(folder, "sqlite"), {
    suffix: "",
    baseline: "plain SQLite, one row for each commit, synchronous=FULL",
    env: {},
    commitsPerSecond: commitsPerSecond(folder)
  })
  const server = yield* startPostgres({ durable: true })
  const url = server.url("postgres")
  yield* measure(join(folder, "postgres"), {
    suffix: ", PostgreSQL",
    baseline: "plain PostgreSQL, one row for each commit",
    env: { MUSTER_DATABASE_URL: url },
    commitsPerSecond: postgresCommitsPerSecond(url)
  })
}).pipe(Effect.scoped)

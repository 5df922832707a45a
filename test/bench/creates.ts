/**
 * Creation of servers on SQLite and PostgreSQL, interleaved: with the embedded node, whose installations run in the
 * service's process, and with a simulated node, which measures the control plane alone. Node and load have a process each.
 * The baseline is single-row commits: to a SQLite file in the same folder, and to the same PostgreSQL.
 */

import { join } from "node:path"
import { PgConnection } from "@effect/sql-pg"
import { Effect, Redacted, type Scope } from "effect"
import { startPostgres } from "../support/postgres.ts"
import { type Service, startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { commitsOf } from "./commits.ts"
import { BenchFailed, interleaved, median, poll, print, sqliteCommitsPerSecond } from "./harness.ts"
import { loadInProcess } from "./loadInProcess.ts"
import { startPlainNodes } from "./startPlainNodes.ts"

const CONNECTIONS = 64
const ROUNDS = 3
const COMMITS = 200
const PORTS = "20000-59999"

/** A database: its settings, and its rate of sequential single-row commits. */
interface Database {
  readonly name: "SQLite" | "PostgreSQL"
  readonly env: Record<string, string>
  readonly plain: string
  readonly commitsPerSecond: Effect.Effect<number, BenchFailed>
}

interface NodeKind {
  readonly name: string
  readonly creations: number
  readonly env: Record<string, string>
  readonly start: (service: Service) => Effect.Effect<unknown, { readonly message: string }, Scope.Scope>
}

const body = JSON.stringify({ blueprint_id: "demo", overrides: { save: true } })

const embedded: NodeKind = {
  name: "embedded node",
  creations: 100,
  env: { MUSTER_EMBEDDED_NODE: "true", MUSTER_EMBEDDED_ALLOCATIONS: `127.0.0.1:${PORTS}` },
  start: () => Effect.void
}

const simulated: NodeKind = {
  name: "simulated node",
  creations: 2_000,
  env: { MUSTER_EMBEDDED_NODE: "false" },
  start: (service) => startPlainNodes(service, 1, PORTS)
}

/** Waits until every server is installed, so that a round does not overlap the previous one. */
const allInstalled = (service: Service) =>
  poll(
    "all servers are installed",
    Effect.map(service.request("GET", "/api/servers?include=status"), ({ text }) =>
      text.includes('"status":"installing"') ? undefined : true
    ),
    { every: 50, seconds: 60 }
  )

const createSome = Effect.fnUntraced(function* (service: Service, creations: number) {
  const before = yield* commitsOf(service)
  const { p50, p99, perSecond } = yield* loadInProcess({
    url: service.url,
    key: service.key,
    connections: CONNECTIONS,
    requests: creations,
    status: 202,
    request: { method: "POST", path: "/api/servers", body }
  })
  const acknowledged = yield* commitsOf(service)
  yield* allInstalled(service)
  const installed = yield* commitsOf(service)
  return {
    perSecond,
    p50,
    p99,
    commits: (acknowledged - before) / creations,
    commitsInAll: (installed - before) / creations
  }
})

type Round = Effect.Success<ReturnType<typeof createSome>>

const startOn = Effect.fnUntraced(function* (folder: string, database: Database, kind: NodeKind) {
  const service = yield* startService({
    dataDir: join(folder, `${database.name} ${kind.name}`),
    env: {
      MUSTER_OVERCOMMIT_MEMORY: "1000",
      MUSTER_OVERCOMMIT_DISK: "1000",
      ...kind.env,
      ...database.env
    }
  })
  yield* kind.start(service)
  yield* poll(
    `the ${kind.name} registers`,
    Effect.map(service.request("GET", "/api/nodes?ids_only=true"), ({ text }) =>
      text === "[]" ? undefined : text
    ),
    { seconds: 10 }
  )
  return service
})

const printRounds = Effect.fnUntraced(function* (
  database: Database,
  kind: NodeKind,
  rounds: ReadonlyArray<Round>,
  plainRounds: ReadonlyArray<number>
) {
  const plain = median(plainRounds)
  const figure = (name: string, unit: string, pick: (round: Round) => number, baseline_value: number) =>
    print({
      bench: "creates",
      figure: `${name}, ${kind.name}, ${database.name}`,
      value: median(rounds.map(pick)),
      unit,
      baseline: database.plain,
      baseline_value
    })
  yield* figure(`acknowledged from ${CONNECTIONS} connections`, "servers/s", (it) => it.perSecond, plain)
  yield* figure("p50 of the 202", "ms", (it) => it.p50, 1000 / plain)
  yield* figure("p99 of the 202", "ms", (it) => it.p99, 1000 / plain)
  yield* figure("commits until acknowledged", "commits/server", (it) => it.commits, 1)
  yield* figure("commits until installed", "commits/server", (it) => it.commitsInAll, 1)
})

const measure = Effect.fnUntraced(function* (
  folder: string,
  kind: NodeKind,
  sqlite: Database,
  postgres: Database
) {
  const roundsOn = Effect.fnUntraced(function* (database: Database) {
    const service = yield* startOn(folder, database, kind)
    const create = createSome(service, kind.creations)
    // The first request warms up.
    yield* create
    return Effect.all({ created: create, plain: database.commitsPerSecond })
  })
  const onPostgres = yield* roundsOn(postgres)
  const onSqlite = yield* roundsOn(sqlite)
  const { baselines, subjects } = yield* interleaved(ROUNDS, onPostgres, onSqlite)
  for (const [database, rounds] of [
    [sqlite, baselines],
    [postgres, subjects]
  ] as const) {
    yield* printRounds(
      database,
      kind,
      rounds.map(({ created }) => created),
      rounds.map(({ plain }) => plain)
    )
  }
  const perSecond = (rounds: typeof subjects) => median(rounds.map(({ created }) => created.perSecond))
  yield* print({
    bench: "creates",
    figure: `acknowledged from ${CONNECTIONS} connections, ${kind.name}, PostgreSQL beside SQLite`,
    value: perSecond(subjects),
    unit: "servers/s",
    baseline: `the same on SQLite`,
    baseline_value: perSecond(baselines)
  })
}, Effect.scoped)

const sqliteIn = (folder: string): Database => ({
  name: "SQLite",
  env: {},
  plain: "plain SQLite, one row for each commit, synchronous=FULL",
  commitsPerSecond: sqliteCommitsPerSecond(join(folder, "plain.db"), COMMITS)
})

const postgresAt = (url: string): Database => ({
  name: "PostgreSQL",
  // A busy machine must not trip the timeout of the database.
  env: { MUSTER_DATABASE_URL: url, MUSTER_DATABASE_TIMEOUT: "5000" },
  plain: "plain PostgreSQL, one row for each commit on one connection",
  commitsPerSecond: Effect.gen(function* () {
    const connection = yield* PgConnection.make({ url: Redacted.make(url) })
    yield* connection.query("CREATE TABLE IF NOT EXISTS plain (id SERIAL PRIMARY KEY, body TEXT NOT NULL)")
    const began = performance.now()
    for (let n = 0; n < COMMITS; n++) yield* connection.query("INSERT INTO plain (body) VALUES ($1)", [body])
    return (COMMITS * 1000) / (performance.now() - began)
  }).pipe(
    Effect.scoped,
    Effect.mapError((error) => new BenchFailed({ message: error.message }))
  )
})

/** Makes a database for each service. */
const newDatabase = (url: string, name: string) =>
  PgConnection.make({ url: Redacted.make(url) }).pipe(
    Effect.flatMap((connection) => connection.query(`CREATE DATABASE ${name}`)),
    Effect.scoped,
    Effect.mapError((error) => new BenchFailed({ message: error.message }))
  )

export const creates = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const server = yield* startPostgres({ durable: true })
  for (const [index, kind] of [simulated, embedded].entries()) {
    const name = `creates_${index}`
    yield* newDatabase(server.url("postgres"), name)
    yield* measure(folder, kind, sqliteIn(folder), postgresAt(server.url(name)))
  }
}).pipe(Effect.scoped)

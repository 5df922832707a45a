/** One PostgreSQL server for a whole test run. */
import { Effect } from "effect"
import type { TestProject } from "vitest/node"
import { startPostgres } from "./postgres.ts"
import { provideShared } from "./sharedOfRun.ts"

export default (project: TestProject) =>
  provideShared(
    project,
    "postgres",
    Effect.map(startPostgres(), (server) => server.url("*"))
  )

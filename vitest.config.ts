import { defineConfig } from "vitest/config"

const results = process.env.MUSTER_TEST_RESULTS

/** What the service does with its database, run on PostgreSQL too; the store's own tests run on both by themselves. */
const onPostgres = [
  "test/servers/{,*/}{Reconciler,ServerIndex,ServerManager,management,removal,replicas,reports}.test.ts",
  "test/keys/{ApiKeys,NodeKeys}.test.ts",
  "test/events/replayFromStore.test.ts",
  "test/http/{events,management,nodes,servers}.test.ts",
  "test/e2e/lifecycle/states.test.ts"
]

/** Minutes of heartbeats on a machine that does nothing else: asked for by name. */
const asked = process.env.MUSTER_TEST_REPLICAS === undefined ? ["test/e2e/nodesOnReplicas.test.ts"] : []

export default defineConfig({
  test: {
    globalSetup: ["test/support/postgresSetup.ts"],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Real processes on a machine that may be busy: one that fails three times has failed.
    retry: process.env.CI === undefined ? 0 : 2,
    pool: "forks",
    maxWorkers: 2,
    reporters: results === undefined ? ["default"] : ["default", ["json", { outputFile: results }]],
    projects: [
      { extends: true, test: { name: "sqlite", include: ["test/**/*.test.ts"], exclude: asked } },
      {
        extends: true,
        test: { name: "postgres", include: onPostgres, env: { MUSTER_TEST_DATABASE: "postgres" } }
      }
    ]
  }
})

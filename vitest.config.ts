import { defineConfig } from "vitest/config"

const results = process.env.MUSTER_TEST_RESULTS

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    pool: "forks",
    maxWorkers: 2,
    reporters: results === undefined ? ["default"] : ["default", ["json", { outputFile: results }]]
  }
})

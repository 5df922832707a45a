import { defineConfig } from "vitest/config"

const results = process.env.MUSTER_TEST_RESULTS

/** Tests of `npm run test:faults`; all others are those of `npm test`. */
const faults = "test/**/*.faults.test.ts"

/**
 * Tests in Chromium, which run after the others: Chromium breaks its requests off when a network of the host changes, as
 * it does with each container.
 */
const browser = "test/{dashboard/*,e2e/tutorials,security/pages,client/package}.faults.test.ts"

/** Tests of `npm run test:faults` that break nothing, and take half the time of all others: each has many rounds or servers. */
const long = [
  "test/cli/{backups,commands}.test.ts",
  "test/controlPlane/http/{backupFiles,backupRules,backupTargets,backups,blueprintSchedules,drills}.test.ts",
  "test/controlPlane/http/{manyChanges,restore,restoreProperty}.test.ts",
  "test/controlPlane/http/{serverLists,undelete,uploadRequests,writtenBackups}.test.ts",
  "test/controlPlane/{events/Tickets,nodes/remote/RemoteDaemon,servers/migrations/migrations}.test.ts",
  "test/daemon/{Adoption,DesiredState,terminal}.test.ts",
  "test/daemon/access/{NodeFiles,archives,tasks,unpack,uploads}.test.ts",
  "test/daemon/backups/*.test.ts",
  "test/daemon/{files/InstanceFiles,install/Installer,runtime/ProcessUsers,runtime/consoleRelay}.test.ts",
  "test/e2e/{breaks/diskFull,lifecycle/redefine,node}.test.ts",
  "test/security/{failedLogins,localCommands,processIsolation,processIsolationSettings,sftpPackets,streams}.test.ts"
]

/** Tests by the clock, for a machine that does nothing else: `npx vitest run --project quiet`. */
const quiet = "test/**/*.quiet.test.ts"

/** Tests of `npm run test:faults` that run on PostgreSQL what other tests run on SQLite; the store's tests run on both. */
const onPostgres = [
  "test/controlPlane/servers/{,*/}{NodeReconciler,ServerIndex,ServerManager,nodeRequests,removal,reports}.test.ts",
  "test/controlPlane/keys/{ApiKeys,NodeKeys}.test.ts",
  "test/controlPlane/events/replayFromStore.test.ts",
  "test/controlPlane/http/{backupRules,backupTargets,backups,events,management,nodes,servers}.test.ts",
  "test/e2e/lifecycle/states.test.ts"
]

/** Most of these tests wait: for the end of a process, and for what notices it. They run after those of `tests`. */
const waiting = { maxWorkers: 5, sequence: { groupOrder: 1 } }

export default defineConfig({
  plugins: [
    {
      name: "threads of the bundle, which load a tenth of the modules",
      enforce: "pre",
      transform: (code) =>
        code.replace(/"\.\/(pack|patch)Worker\.ts"/, (_, name: string) =>
          JSON.stringify(new URL(`dist/chunks/${name}Worker.js`, import.meta.url).href)
        )
    }
  ],
  test: {
    globalSetup: ["bundle", "postgres", "docker"].map((name) => `test/support/${name}Setup.ts`),
    // Longer than the deadlines of tests, which say what they wait for.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    pool: "forks",
    // Twice the cores of a small machine: tests wait for processes.
    maxWorkers: 4,
    reporters: results === undefined ? ["default"] : ["default", ["json", { outputFile: results }]],
    projects: [
      {
        extends: true,
        // Files of a worker share the modules: loading them anew takes a fifth of the time.
        test: {
          name: "tests",
          include: ["test/**/*.test.ts"],
          exclude: [faults, quiet, ...long],
          isolate: false
        }
      },
      { extends: true, test: { name: "faults", include: [faults], exclude: [browser], ...waiting } },
      {
        extends: true,
        test: { name: "long", include: long, exclude: [faults], isolate: false, ...waiting }
      },
      { extends: true, test: { name: "browser", include: [browser], sequence: { groupOrder: 2 } } },
      { extends: true, test: { name: "quiet", include: [quiet] } },
      {
        extends: true,
        // These files share modules in `tests`, too.
        test: {
          name: "postgres",
          include: onPostgres,
          isolate: false,
          ...waiting,
          env: { MUSTER_TEST_DATABASE: "postgres" }
        }
      }
    ]
  }
})

import { copyFileSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startChild } from "../support/child.ts"
import { muster } from "../support/command.ts"
import { readDatabase } from "../support/database.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { printed } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { alone, connectedNode, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { freeAllocations } from "../support/ports.ts"
import { startPostgres } from "../support/postgres.ts"
import { newPostgresDatabase } from "../support/postgresDatabase.ts"
import { postgresTools, postgresToolsNote, withPostgresTools } from "../support/postgresTools.ts"
import { endLeftovers, serverProcesses } from "../support/processes.ts"
import { adminKey, type Service, startService } from "../support/Service.ts"
import {
  becomes,
  commands,
  expectStatus,
  installed,
  logsHave,
  running,
  statusOf
} from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** Writes each console line to a file, which it prints at its start. */
const notesServer = `[ -f world/notes ] && echo "world: $(cat world/notes)"
echo ready
while read -r line; do
  [ "$line" = stop ] && exit 0
  mkdir -p world; echo "$line" > world/notes; echo "wrote $line"
done`

const games = {
  software: { "keeper.yml": softwareFile("keeper", { files: { "server.sh": notesServer } }) },
  blueprints: {
    "kept.yml": blueprintFile("kept", "keeper"),
    "passing.yml": blueprintFile("passing", "keeper", { save: false })
  }
}

/** A database file, its backup, and the restore of docs/database.md. */
const databaseIn = (dataDir: string) => {
  const backup = join(dataDir, "backup.db")
  return {
    backUp: Effect.gen(function* () {
      const { code, stderr } = yield* muster(["db", "backup", backup], { MUSTER_DATA_DIR: dataDir })
      assert.deepStrictEqual([code, stderr], [0, ""])
    }),
    restore: Effect.sync(() => {
      for (const end of ["", "-wal", "-shm"]) rmSync(join(dataDir, `muster.db${end}`), { force: true })
      copyFileSync(backup, join(dataDir, "muster.db"))
    })
  }
}

const wrote = Effect.fnUntraced(function* (api: Service, id: string, line: string) {
  yield* commands(api, id, line)
  yield* logsHave(api, id, `wrote ${line}`)
})

const namesIn = (folder: string) => (existsSync(folder) ? readdirSync(folder).sort() : [])
const nodeOf = ({ dataDir }: { readonly dataDir: string }) => join(dataDir, "node")
const textOf = (...path: ReadonlyArray<string>) => readFileSync(join(...path), "utf8")
/** The log line follows its event with a short delay. */
const logsLine = (process: { readonly output: () => string }, line: RegExp) =>
  eventually(Effect.sync(process.output), (output) => line.test(output))

const isKept = (node: { readonly dataDir: string }, id: string) =>
  eventually(
    Effect.sync(() => existsSync(join(nodeOf(node), "lost", `${id}.json`))),
    (there) => there
  )

describe("docs/database.md, Know the effects of a restore", () => {
  it.live(
    "servers created since the backup are stopped and kept, and recover as printed; others run on",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const dataDir = join(yield* temporaryFolder, "data")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const env = {
          ...folders.env,
          ...(yield* freeAllocations(3)),
          MUSTER_EMBEDDED_ON_SHUTDOWN: "keep"
        }
        const database = databaseIn(dataDir)
        const { before, since } = yield* Effect.scoped(
          Effect.gen(function* () {
            const api = yield* startService({ dataDir, env })
            const before = yield* running(api, "kept")
            yield* wrote(api, before, "a garden")
            yield* database.backUp
            const since = yield* running(api, "kept")
            yield* wrote(api, since, "a castle")
            yield* running(api, "passing")
            // No regular shutdown.
            yield* api.kill("SIGKILL")
            return { before, since }
          })
        )
        yield* database.restore

        const api = yield* startService({ dataDir, env })
        yield* isKept(api, since)
        yield* becomes(api, before, "running")
        assert.strictEqual(yield* statusOf(api, since), "gone")
        const lost = join(dataDir, "node/lost")
        assert.deepStrictEqual(namesIn(lost), [since, `${since}.json`])
        assert.strictEqual(textOf(lost, since, "files/world/notes"), "a castle\n")
        yield* eventually(
          Effect.sync(() => namesIn(join(dataDir, "node/servers"))),
          (names) => names.length === 1 && names[0] === before
        )
        assert.deepStrictEqual([...new Set(serverProcesses(dataDir).map(({ server }) => server))], [before])
        yield* logsLine(
          api,
          new RegExp(`WARN.*database has no record of ${since}: .*kept in ${join(lost, since)}/files`)
        )
        yield* logsLine(api, new RegExp(`WARN.*database does not have these servers of a node: .*${since}`))
        // The ports of both are free; with the one of the earlier server there are three.
        yield* installed(api, "kept")

        const block = printed("docs/database.md", "lost")
        writeFileSync(join(dataDir, "admin.key"), adminKey)
        const shell = yield* startChild(["sh", "-s"], { cwd: dirname(dataDir) })
        yield* shell.write(block.replace("http://127.0.0.1:5620", api.url))
        yield* shell.endInput
        assert.strictEqual(yield* shell.exited(), 0, shell.output())
        assert.include(shell.output(), `"server_id": "${since}"`)
        const listed = yield* expectStatus(api, 200, "GET", "/api/servers")
        const ids: ReadonlyArray<string> = listed.json.map(({ id }: { readonly id: string }) => id)
        assert.strictEqual(ids.length, 3)
        yield* logsHave(api, ids.at(-1) ?? "", "world: a castle")
        yield* logsHave(api, before, "wrote a garden")
        // Files are never removed from there.
        assert.deepStrictEqual(namesIn(lost), [since, `${since}.json`])
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "a server that has migrated since is kept on its node, and installed again on the node of the record",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const dataDir = join(yield* temporaryFolder, "data")
        const env = { ...alone, ...folders.env, MUSTER_PORT: String(yield* freePort) }
        const database = databaseIn(dataDir)
        const nodeEnv = { MUSTER_NODE_HEARTBEAT: "1" }
        const { api, from, id, since, to } = yield* Effect.gen(function* () {
          const api = yield* startService({ dataDir, env })
          const key = { key: (yield* nodeKey(api, "from")).key }
          const other = { key: (yield* nodeKey(api, "to")).key }
          const from = yield* connectedNode(api, "from", {
            ...key,
            env: { ...nodeEnv, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28700-28709" }
          })
          const id = yield* running(api, "kept")
          yield* wrote(api, id, "a garden")
          const to = yield* connectedNode(api, "to", {
            ...other,
            env: { ...nodeEnv, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28710-28719" }
          })
          yield* database.backUp
          const drained = yield* muster(["nodes", "drain", "from", "--move", "--wait"], {
            MUSTER_URL: api.url,
            MUSTER_API_KEY: api.key
          })
          assert.strictEqual(drained.code, 0, drained.stderr)
          yield* becomes(api, id, "running")
          yield* wrote(api, id, "a castle")
          const since = yield* running(api, "kept")
          yield* wrote(api, since, "a tower")
          yield* eventually(
            Effect.sync(() => namesIn(join(nodeOf(from), "servers"))),
            (names) => names.length === 0
          )
          yield* api.kill("SIGTERM")
          return { api, from, id, since, to }
        })
        yield* database.restore
        const again = yield* startService({ dataDir, env })
        assert.strictEqual(again.url, api.url)
        yield* isKept(to, id)
        yield* isKept(to, since)
        const lost = join(nodeOf(to), "lost")
        assert.strictEqual(textOf(lost, id, "files/world/notes"), "a castle\n")
        assert.strictEqual(textOf(lost, since, "files/world/notes"), "a tower\n")
        assert.deepStrictEqual(namesIn(join(nodeOf(to), "servers")), [])
        assert.deepStrictEqual(serverProcesses(to.dataDir), [])
        // Only the log of the service names the node of the record.
        yield* logsLine(to, new RegExp(`WARN.*database has no record of ${id}: .*${join(lost, id)}`))
        assert.include(again.output(), `${id} (on from instead)`)
        yield* logsLine(to, new RegExp(`WARN.*database has no record of ${since}: .*${join(lost, since)}`))
        // The server has a record, so it is installed again, without its files.
        yield* becomes(again, id, "offline")
        assert.isFalse(existsSync(join(nodeOf(from), "servers", id, "files/world")))
        assert.deepStrictEqual(namesIn(join(nodeOf(from), "lost")), [])
        const { ports } = yield* readDatabase(dataDir)
        assert.deepStrictEqual([...new Set(ports.map(({ server_id }) => server_id))], [id])
      }).pipe(Effect.scoped),
    120_000
  )
})

describe("docs/database.md, Back up PostgreSQL", () => {
  it.live.runIf(withPostgresTools)(
    `as printed: running nodes keep the instances that the restored database does not have${postgresToolsNote}`,
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const folder = yield* temporaryFolder
        const dataDir = join(folder, "data")
        const server = yield* startPostgres({ programs: postgresTools })
        const database = yield* newPostgresDatabase(server)
        const env = {
          ...alone,
          ...folders.env,
          MUSTER_PORT: String(yield* freePort),
          MUSTER_DATABASE_URL: database
        }
        const run = Effect.fnUntraced(function* (command: string) {
          const shell = yield* startChild(["sh", "-ec", command], {
            cwd: folder,
            env: { MUSTER_DATABASE_URL: database, PATH: `${postgresTools}:${process.env.PATH}` }
          })
          assert.strictEqual(yield* shell.exited(), 0, shell.output())
        })
        /** Runs services on the database while they are used. */
        const served = <A, E, R>(use: (api: Service) => Effect.Effect<A, E, R>) =>
          Effect.scoped(Effect.flatMap(startService({ dataDir, env }), use))
        const made = yield* muster(["keys", "create", "--name", "n", "--scope", "Node", "--database"], {
          MUSTER_DATA_DIR: dataDir,
          MUSTER_DATABASE_URL: database
        })
        const node = yield* startNode({
          control: `http://127.0.0.1:${env.MUSTER_PORT}`,
          key: made.stdout.trim(),
          id: "stays",
          env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28730-28739" }
        })
        const { before, since } = yield* served((api) =>
          Effect.gen(function* () {
            yield* nodeIs(api, "stays", true)
            const before = yield* running(api, "kept")
            // While the service runs.
            yield* run(printed("docs/database.md", "dump"))
            const since = yield* running(api, "kept")
            yield* wrote(api, since, "a castle")
            return { before, since }
          })
        )
        yield* run(printed("docs/database.md", "restore"))
        yield* served((api) =>
          Effect.gen(function* () {
            yield* isKept(node, since)
            yield* becomes(api, before, "running")
            assert.strictEqual(textOf(nodeOf(node), "lost", since, "files/world/notes"), "a castle\n")
            assert.deepStrictEqual(namesIn(join(nodeOf(node), "servers")), [before])
          })
        )
      }).pipe(Effect.scoped),
    120_000
  )
})

describe("spec 9.6: a server deleted while its node was away", () => {
  it.live(
    "a server that was given up or deleted with force is removed when its node returns, also after the node was removed",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(games)
        const api = yield* startService({
          env: { ...alone, ...folders.env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "2", MUSTER_NODE_LOST_AFTER: "3" }
        })
        const { key } = yield* nodeKey(api, "away")
        const dataDir = join(yield* temporaryFolder, "away")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const options = {
          control: api.url,
          key,
          id: "away",
          dataDir,
          env: {
            MUSTER_NODE_HEARTBEAT: "1",
            MUSTER_NODE_ON_SHUTDOWN: "keep",
            MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28720-28729"
          }
        }
        for (const forgotten of [false, true]) {
          const node = yield* startNode(options)
          yield* nodeIs(api, "away", true)
          const kept = yield* running(api, "kept")
          const passing = yield* running(api, "passing")
          yield* wrote(api, kept, "a castle")
          yield* node.kill("SIGKILL")
          yield* nodeIs(api, "away", false)
          yield* becomes(api, passing, "gone")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${kept}?force=true&purge=true`)
          if (forgotten) yield* expectStatus(api, 200, "DELETE", "/api/nodes/away")
          assert.deepStrictEqual(namesIn(join(dataDir, "node/servers")), [kept, passing].sort())
          const back = yield* startNode({ ...options, key: forgotten ? (yield* nodeKey(api)).key : key })
          yield* eventually(
            Effect.sync(() => namesIn(join(dataDir, "node/servers"))),
            (names) => names.length === 0
          )
          assert.deepStrictEqual(namesIn(join(dataDir, "node/lost")), [])
          assert.notMatch(back.output(), /database has no record of/)
          yield* back.kill("SIGKILL")
          yield* nodeIs(api, "away", false)
        }
      }).pipe(Effect.scoped),
    120_000
  )
})

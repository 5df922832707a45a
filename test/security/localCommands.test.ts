/** Commands on the host of a service reach it at its unix socket, and send no key to a port. */
import { execFile } from "node:child_process"
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { requestTo, startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const isRoot = process.geteuid?.() === 0

/** A program that takes a port of this host or the path of a socket, and notes all that it gets. */
const thiefAt = (address: { readonly port: number; readonly host: string } | { readonly path: string }) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly got: () => number; readonly close: () => void }>((resume) => {
      let got = 0
      const server = createServer((socket) => {
        got += 1
        socket.on("error", () => {}).end("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
      })
      server.listen(address, () => resume(Effect.succeed({ got: () => got, close: () => server.close() })))
    }),
    ({ close }) => Effect.sync(close)
  )

describe("SECURITY.md, Where secrets are: commands on the host of the service", () => {
  it.live(
    "a program that takes the port of a killed service gets no request of a command; the next start replaces the socket",
    () =>
      Effect.gen(function* () {
        const port = yield* freePort
        const dataDir = join(yield* temporaryFolder, "data")
        const socket = join(dataDir, "muster.sock")
        const env = { MUSTER_DATA_DIR: dataDir, MUSTER_PORT: String(port) }
        const settings = { dataDir, env: { ...alone, MUSTER_PORT: String(port), APP_ADMIN_API_KEY: "" } }
        yield* Effect.gen(function* () {
          const first = yield* startService(settings)
          assert.strictEqual(statSync(socket).mode & 0o777, 0o600)
          const listed = yield* muster(["servers", "list"], env)
          assert.deepStrictEqual([listed.code, listed.stderr], [0, "No servers.\n"])
          yield* first.kill("SIGKILL")

          const thief = yield* thiefAt({ port, host: "127.0.0.1" })
          assert.isTrue(existsSync(join(dataDir, "admin.key")))
          for (const own of [env, { ...env, MUSTER_API_KEY: "mst_own" }]) {
            const { code, stderr, stdout } = yield* muster(["servers", "list"], own)
            assert.deepStrictEqual([code, stdout], [5, ""])
            assert.include(stderr, "no service runs on this data folder")
          }
          const named = yield* muster(["servers", "list"], { ...env, MUSTER_URL: `http://127.0.0.1:${port}` })
          assert.strictEqual(named.code, 4)
          assert.include(named.stderr, `there is no key for http://127.0.0.1:${port}: set MUSTER_API_KEY`)
          assert.strictEqual(thief.got(), 0)
        }).pipe(Effect.scoped)

        const second = yield* startService(settings)
        const again = yield* muster(["servers", "list"], env)
        assert.deepStrictEqual([again.code, again.stderr], [0, "No servers.\n"])
        yield* second.kill("SIGTERM")
        assert.isFalse(existsSync(socket))
      }).pipe(Effect.scoped)
  )

  it.live("at the socket a key has its own rights; without one, the caller has all. A port needs a key", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: alone })
      const env = { MUSTER_DATA_DIR: api.dataDir }
      const made = yield* muster(["keys", "create", "--name", "reader", "--scope", "ReadOnly"], env)
      const scoped = { ...env, MUSTER_API_KEY: made.stdout.trim() }
      assert.strictEqual((yield* muster(["servers", "list"], scoped)).code, 0)
      assert.strictEqual((yield* muster(["keys", "list"], scoped)).code, 4)
      assert.strictEqual((yield* muster(["servers", "list"], { ...env, MUSTER_API_KEY: "x" })).code, 4)
      assert.strictEqual((yield* requestTo(api.url, "")("GET", "/api/servers", { key: null })).status, 401)
      const running = yield* muster(["keys", "list", "--database"], env)
      assert.strictEqual(running.code, 1)
      assert.match(running.stderr, /^a service uses the database .*: run the command without --database/)
      yield* api.kill("SIGTERM")
      const stopped = yield* muster(["keys", "list", "--database"], env)
      assert.match(stopped.stderr, /^On the database of a stopped service: /)
      assert.match(stopped.stdout, /reader/)
    }).pipe(Effect.scoped)
  )

  it.live("a key without an address goes to no port, also on a host without a data folder", () =>
    Effect.gen(function* () {
      const port = yield* freePort
      const thief = yield* thiefAt({ port, host: "127.0.0.1" })
      const dataDir = join(yield* temporaryFolder, "data")
      const env = { MUSTER_DATA_DIR: dataDir, MUSTER_PORT: String(port), MUSTER_API_KEY: "mst_own" }
      const { code, stderr } = yield* muster(["servers", "list"], env)
      assert.strictEqual(code, 5)
      assert.match(stderr, /^there is no data folder .*, or MUSTER_URL and MUSTER_API_KEY\n$/)
      assert.strictEqual(thief.got(), 0)
    }).pipe(Effect.scoped)
  )

  it.live.skipIf(!isRoot)("a key goes to no socket that another user can have put there", () =>
    Effect.gen(function* () {
      const nobody = 65534
      for (const [part, owner, mode] of [
        ["data/muster.sock", nobody, 0o600],
        ["data", nobody, 0o700],
        ["", nobody, 0o755],
        ["", 0, 0o777]
      ] as const) {
        const folder = yield* temporaryFolder
        const dataDir = join(folder, "data")
        mkdirSync(dataDir)
        const socket = join(dataDir, "muster.sock")
        const thief = yield* thiefAt({ path: socket })
        const foreign = join(folder, part)
        chownSync(foreign, owner, owner)
        chmodSync(foreign, mode)
        const env = { MUSTER_DATA_DIR: dataDir, MUSTER_API_KEY: "mst_own" }
        const { code, stderr } = yield* muster(["servers", "list"], env)
        assert.deepStrictEqual(
          [code, stderr, thief.got()],
          [
            4,
            `another user decides what listens at ${socket}, by ${foreign}: set MUSTER_URL and MUSTER_API_KEY to call the service at its address, or unset MUSTER_API_KEY as root\n`,
            0
          ]
        )
      }
    }).pipe(Effect.scoped)
  )

  it.live("a daemon on the host reaches the service at the socket, without a port", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: alone })
      const { key } = yield* nodeKey(api)
      const control = `unix:${join(api.dataDir, "muster.sock")}`
      yield* startNode({ control, key, id: "beside" })
      yield* nodeIs(api, "beside", true)
    }).pipe(Effect.scoped)
  )

  it.live.skipIf(!isRoot)("another user of the host cannot use the socket", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const dataDir = join(folder, "data")
      // A folder that others may enter: the mode of the socket alone decides.
      mkdirSync(dataDir)
      for (const path of [folder, dataDir]) chmodSync(path, 0o755)
      yield* startService({ dataDir, env: alone })
      const program = join(folder, "connect.mjs")
      writeFileSync(
        program,
        `import { connect } from "node:net"
process.setgid(65534); process.setuid(65534)
const socket = connect(${JSON.stringify(join(dataDir, "muster.sock"))})
socket.once("connect", () => process.exit(7)).once("error", ({ code }) => console.log(code))`
      )
      const output = yield* Effect.callback<string>((resume) => {
        execFile(process.execPath, [program], (_, stdout) => resume(Effect.succeed(stdout)))
      })
      assert.strictEqual(output, "EACCES\n")
    }).pipe(Effect.scoped)
  )

  it.live(
    "a data folder whose path is too long for a socket is a warning, and commands name the remedy",
    () =>
      Effect.gen(function* () {
        const dataDir = join(yield* temporaryFolder, "d".repeat(100), "data")
        const api = yield* startService({ dataDir, env: alone })
        assert.match(api.output(), /there is no socket for commands on this host \(the path .* has \d+ bytes/)
        const { code, stderr } = yield* muster(["servers", "list"], { MUSTER_DATA_DIR: dataDir })
        assert.strictEqual(code, 5)
        assert.match(stderr, /at most 107: set MUSTER_URL and MUSTER_API_KEY/)
        assert.isFalse(readFileSync("/proc/net/unix", "latin1").includes(dataDir))
      }).pipe(Effect.scoped)
  )
})

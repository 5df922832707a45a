/** Large files over connections that are cut, between a service and a daemon that are killed. */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { globSync, statSync } from "node:fs"
import { get, type IncomingMessage, request } from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { type Fault, restartable, tcpProxy } from "../support/faults/index.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { endLeftovers } from "../support/processes.ts"
import { adminKey, requestTo, startService } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const MIB = 2 ** 20
const SIZE = 512 * MIB

const games = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** A server on a node of its own, behind a proxy whose connections can be cut. */
const makeScene = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const { env } = yield* definitions(games)
  const port = yield* freePort
  const dataDir = join(folder, "data")
  const service = yield* restartable(
    "the service",
    startService({ dataDir, env: { ...alone, ...env, MUSTER_PORT: String(port) } })
  )
  const api = yield* service.current
  const { key } = yield* nodeKey(api, "far")
  const nodeDir = join(folder, "far")
  yield* Effect.addFinalizer(() => endLeftovers(nodeDir))
  const daemon = yield* restartable(
    "the daemon",
    startNode({
      control: api.url,
      key,
      id: "far",
      dataDir: nodeDir,
      env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28650-28669" }
    })
  )
  yield* nodeIs(api, "far", true)
  const id = yield* installed(api, "kept")
  const proxy = yield* tcpProxy(port)
  const path = (name: string) => `/api/servers/${id}/files/content?path=/${name}`
  const ready = eventually(
    Effect.option(requestTo(api.url, adminKey)("HEAD", path("server.sh"))),
    (answer) => answer._tag === "Some" && answer.value.status === 200,
    "60 seconds"
  )
  return { id, service, daemon, proxy, nodeDir, path, ready, url: `http://127.0.0.1:${proxy.port}`, api }
})

const authorization = `Bearer ${adminKey}`

/** Asks for the bytes of a file from a place on; returns the response before its first byte. */
const download = (url: string, range: Readonly<Record<string, string>>) =>
  Effect.callback<IncomingMessage, Error>((resume) => {
    get(url, { headers: { authorization, ...range }, agent: false }, (response) => {
      response.pause()
      resume(Effect.succeed(response.on("error", () => {})))
    }).on("error", (error) => resume(Effect.fail(error)))
  })

/** Reads until so many bytes are there, or the response has ended. */
const readUntil = (response: IncomingMessage, use: (bytes: Buffer) => boolean) =>
  Effect.callback<"reached" | "ended">((resume) => {
    const done = (how: "reached" | "ended") => {
      response.pause().off("data", onData).off("close", onClose)
      resume(Effect.succeed(how))
    }
    const onData = (bytes: Buffer) => {
      if (use(bytes)) done("reached")
    }
    const onClose = () => done("ended")
    response.on("data", onData).on("close", onClose).resume()
  })

describe("spec 10.3: a large file over connections that break", () => {
  it.live(
    "arrives whole by ranges, after three cut connections, a killed service and a killed daemon",
    () =>
      Effect.gen(function* () {
        const { daemon, id, nodeDir, path, proxy, ready, service, url } = yield* makeScene
        const file = join(nodeDir, "node/servers", id, "files/large")
        const made = spawnSync(
          "sh",
          ["-c", `head -c ${SIZE} /dev/urandom > ${file} && sha256sum < ${file}`],
          {
            encoding: "utf8"
          }
        )
        assert.strictEqual(made.status, 0, made.stderr)
        const hash = createHash("sha256")
        let at = 0
        let etag: string | undefined
        const faults: ReadonlyArray<Fault> = [
          proxy.dropped,
          service.killed,
          proxy.dropped,
          daemon.killed,
          proxy.dropped
        ]
        for (const [index, fault] of [...faults, undefined].entries()) {
          const until = ((index + 1) * SIZE) / (faults.length + 1)
          const range = etag === undefined ? {} : { range: `bytes=${at}-`, "if-range": etag }
          const response = yield* download(`${url}${path("large")}`, range)
          assert.strictEqual(response.statusCode, at === 0 ? 200 : 206)
          etag = response.headers.etag
          const take = (bytes: Buffer) => {
            hash.update(bytes)
            at += bytes.length
            return at >= until
          }
          yield* readUntil(response, take)
          if (fault === undefined) continue
          yield* fault.inject
          const how = yield* readUntil(response, (bytes) => {
            take(bytes)
            return false
          })
          assert.strictEqual(how, "ended")
          assert.isFalse(response.complete)
          assert.isBelow(at, SIZE)
          yield* fault.heal
          yield* ready
        }
        assert.strictEqual(at, SIZE)
        assert.strictEqual(hash.digest("hex"), made.stdout.split(" ")[0])
      }).pipe(Effect.scoped),
    240_000
  )

  it.live(
    "replaces nothing if the daemon is killed before the last byte, and leaves no temporary file",
    () =>
      Effect.gen(function* () {
        const { api, daemon, id, nodeDir, path, ready, url } = yield* makeScene
        const folder = join(nodeDir, "node/servers", id, "files")
        yield* expectStatus(api, 201, "PUT", path("kept"), { raw: "the old file" })
        const upload = request(`${url}${path("kept")}`, {
          method: "PUT",
          headers: { authorization, "content-length": 64 * MIB },
          agent: false
        })
        const refused = Effect.callback<boolean>((resume) => {
          upload.on("response", ({ statusCode = 0 }) => resume(Effect.succeed(statusCode >= 400)))
          upload.on("error", () => resume(Effect.succeed(true)))
        })
        upload.write(Buffer.alloc(32 * MIB))
        const temporary = () => globSync(join(folder, ".muster-*.tmp"))
        yield* eventually(
          () => temporary().some((name) => statSync(name).size > 16 * MIB),
          (isWritten) => isWritten
        )
        yield* daemon.killed.inject
        assert.isTrue(yield* refused)
        assert.strictEqual(temporary().length, 1)
        yield* daemon.killed.heal
        yield* ready
        assert.strictEqual((yield* expectStatus(api, 200, "GET", path("kept"))).text, "the old file")
        assert.deepStrictEqual(temporary(), [])
      }).pipe(Effect.scoped),
    120_000
  )
})

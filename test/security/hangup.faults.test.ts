import { X509Certificate } from "node:crypto"
import {
  copyFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join, resolve } from "node:path"
import { connect } from "node:tls"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeKey, startNode } from "../support/nodes.ts"
import { type Service, ServiceFailed, startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const tls = resolve(import.meta.dirname, "../support/tls")
const old = { cert: join(tls, "cert.pem"), key: join(tls, "key.pem") }
const renewed = { cert: join(tls, "renewed-cert.pem"), key: join(tls, "renewed-key.pem") }
const renewedPrint = new X509Certificate(readFileSync(renewed.cert)).fingerprint256
const oldPrint = new X509Certificate(readFileSync(old.cert)).fingerprint256

/** The fingerprint of the certificate of a new connection. */
const shown = (url: string) =>
  Effect.callback<string, ServiceFailed>((resume) => {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), rejectUnauthorized: false }, () => {
      resume(Effect.succeed(socket.getPeerX509Certificate()?.fingerprint256 ?? "none"))
      socket.destroy()
    })
    socket.on("error", (error) => resume(Effect.fail(new ServiceFailed({ message: String(error) }))))
  })

/** A folder with a certificate as Kubernetes mounts it: the files are links into a folder that is swapped. */
const mounted = Effect.map(temporaryFolder, (folder) => {
  const swap = (name: string, files: typeof old) => {
    mkdirSync(join(folder, name))
    copyFileSync(files.cert, join(folder, name, "tls.crt"))
    copyFileSync(files.key, join(folder, name, "tls.key"))
    symlinkSync(name, join(folder, "..next"))
    renameSync(join(folder, "..next"), join(folder, "..data"))
  }
  swap("..1", old)
  symlinkSync("..data/tls.crt", join(folder, "tls.crt"))
  symlinkSync("..data/tls.key", join(folder, "tls.key"))
  return { cert: join(folder, "tls.crt"), key: join(folder, "tls.key"), swap }
})

const hangUp = (process: Service["process"]) => Effect.sync(() => process.kill("SIGHUP"))

const says = (of: { readonly output: () => string }, pattern: RegExp) =>
  eventually(Effect.sync(of.output), (text) => pattern.test(text))

describe("transport: certificates are read again when their files change", () => {
  it.live(
    "the service uses a new certificate after a swap of links, and keeps it if the next one is invalid",
    () =>
      Effect.gen(function* () {
        const files = yield* mounted
        const api = yield* startService({
          env: { ...alone, MUSTER_TLS_CERT: files.cert, MUSTER_TLS_KEY: files.key }
        })
        assert.strictEqual(yield* shown(api.url), oldPrint)
        files.swap("..2", renewed)
        yield* eventually(shown(api.url), (print) => print === renewedPrint)
        // A key that does not match its certificate.
        files.swap("..3", { cert: renewed.cert, key: old.key })
        yield* says(api, /WARN.*MUSTER_TLS_CERT, MUSTER_TLS_KEY: not usable.*stays in use/)
        assert.strictEqual(yield* shown(api.url), renewedPrint)
        // A renewal on a full disk leaves an empty file.
        const empty = join(yield* temporaryFolder, "empty.pem")
        writeFileSync(empty, "")
        for (const [name, pair] of [
          ["..4", { cert: empty, key: renewed.key }],
          ["..5", { cert: renewed.cert, key: empty }]
        ] as const) {
          const before = api.output().length
          files.swap(name, pair)
          yield* hangUp(api.process)
          yield* says(
            { output: () => api.output().slice(before) },
            /WARN.*SIGHUP: .*MUSTER_TLS_CERT, MUSTER_TLS_KEY not reloaded \(.*not usable/
          )
          assert.strictEqual(yield* shown(api.url), renewedPrint)
        }
      }).pipe(Effect.scoped)
  )

  it.live("SIGHUP reads the daemon's certificate at once, and the daemon keeps running", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const files = { cert: join(folder, "tls.crt"), key: join(folder, "tls.key") }
      copyFileSync(old.cert, files.cert)
      copyFileSync(old.key, files.key)
      const api = yield* startService({ env: alone })
      const { key } = yield* nodeKey(api)
      const node = yield* startNode({
        control: api.url,
        key,
        id: "renewing",
        env: { MUSTER_NODE_TLS_CERT: files.cert, MUSTER_NODE_TLS_KEY: files.key }
      })
      writeFileSync(files.cert, readFileSync(renewed.cert))
      writeFileSync(files.key, readFileSync(renewed.key))
      yield* hangUp(node.process)
      yield* says(node, /SIGHUP: MUSTER_NODE_TLS_CERT, MUSTER_NODE_TLS_KEY (reloaded|unchanged)/)
      assert.strictEqual(yield* shown(node.url), renewedPrint)
      rmSync(files.key)
      yield* hangUp(node.process)
      yield* says(node, /WARN.*SIGHUP: .* not reloaded \(MUSTER_NODE_TLS_KEY: .* cannot be read/)
      assert.strictEqual(yield* shown(node.url), renewedPrint)
    }).pipe(Effect.scoped)
  )

  it.live("a daemon trusts the new authority of the control plane", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const ca = join(folder, "ca.pem")
      copyFileSync(old.cert, ca)
      const api = yield* startService({
        env: { ...alone, MUSTER_TLS_CERT: renewed.cert, MUSTER_TLS_KEY: renewed.key }
      })
      const { key } = yield* nodeKey(api)
      const node = yield* startNode({ control: api.url, key, id: "trusting", env: { MUSTER_CONTROL_CA: ca } })
      yield* says(node, /TLS fails/)
      copyFileSync(renewed.cert, ca)
      yield* hangUp(node.process)
      yield* says(api, /trusting/)
      assert.notMatch(node.output(), /SIGHUP: .*not reloaded/)
    }).pipe(Effect.scoped)
  )
})

describe("operation: SIGHUP reloads definitions", () => {
  it.live(
    "SIGHUP reloads definitions and logs one line, also if a file is invalid; the service keeps running",
    () =>
      Effect.gen(function* () {
        const { blueprints, env } = yield* definitions({
          software: { "game.yml": softwareFile("game") },
          blueprints: { "one.yml": blueprintFile("one", "game") }
        })
        const api = yield* startService({ env: { ...alone, ...env } })
        const file = join(blueprints, "two.yml")
        writeFileSync(file, blueprintFile("two", "game"))
        yield* hangUp(api.process)
        yield* says(api, /SIGHUP: software reloaded, blueprints reloaded/)
        assert.strictEqual((yield* api.request("GET", "/api/blueprints/two")).status, 200)
        writeFileSync(file, "id: [")
        yield* hangUp(api.process)
        yield* says(api, /WARN.*SIGHUP: software reloaded, blueprints not reloaded \(.*two\.yml/)
        assert.strictEqual((yield* api.request("GET", "/api/blueprints/two")).status, 200)
      }).pipe(Effect.scoped)
  )
})

import { globSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs"
import { connect as connectTcp } from "node:net"
import { dirname, join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { Client, ClientChannel } from "ssh2"
import { FAILURES_PER_MINUTE } from "../../../src/controlPlane/http/FailedLogins.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import type { Service } from "../../support/Service.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { keyed } from "../http/support/keyed.ts"
import { call, connect, openSftp, sftpOf, sftpService } from "./support/sftp.ts"

const MIB = 2 ** 20
const CLIENTS = 15

const OPEN = 3
const READ = 5
const word = (value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}
const text = (value: string) => Buffer.concat([word(value.length), Buffer.from(value)])
const packet = (type: number, id: number, ...fields: ReadonlyArray<Buffer>) => {
  const body = Buffer.concat([Buffer.from([type]), word(id), ...fields])
  return Buffer.concat([word(body.length), body])
}
const init = Buffer.from([0, 0, 0, 5, 1, 0, 0, 0, 3])

const residentBytes = ({ process: { pid } }: Service) =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024

const options = { excludeTestServices: true, timeout: "120 seconds" } as const

layer(sftpService(), options)("bounds of SFTP", (it) => {
  describe("spec 10.6: bounds", () => {
    it.effect("a key has at most 16 connections, and another key has its own", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const key = yield* keyed("Operator", { allow: ["browse"] })
        for (let count = 0; count < 16; count += 1) yield* connect(muster, id, key.key)
        assert.match(yield* Effect.flip(connect(muster, id, key.key)), /closed|ended|reset|lost/i)
        yield* connect(muster, id, muster.key)
      }).pipe(Effect.scoped)
    )

    it.effect("a service has at most 256 connections; one more is accepted once another has ended", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const clients: Array<Client> = []
        for (let keys = 0; keys < 16; keys += 1) {
          const { key } = yield* keyed("Operator", { allow: ["browse"] })
          const more = Effect.replicateEffect(connect(muster, id, key), 16, { concurrency: 8 })
          clients.push(...(yield* more))
        }
        assert.match(yield* Effect.flip(connect(muster, id, muster.key)), /closed|ended|reset|lost/i)
        clients[0]?.end()
        yield* eventually(
          Effect.match(connect(muster, id, muster.key), { onSuccess: () => true, onFailure: () => false }),
          (isAccepted) => isAccepted
        )
      }).pipe(Effect.scoped)
    )

    it.effect("clients that ask for much and read nothing take at most 4 MiB each", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const large = join(muster.dataDir, "node", "servers", id, "files", "large")
        writeFileSync(large, "")
        truncateSync(large, 512 * MIB)
        const greedyOf = Effect.fnUntraced(function* (key: string) {
          const client = yield* connect(muster, id, key)
          const channel = yield* call<ClientChannel>((done) => client.subsys("sftp", done))
          channel.write(init)
          channel.write(packet(OPEN, 1, text("/large"), word(1), word(0)))
          for (let number = 0; number < 2000; number += 1)
            channel.write(packet(READ, 2 + number, text("1"), word(0), word(number * 65_536), word(65_536)))
          // Nothing is read: the connection itself stops.
          channel.pause()
        })
        // Encrypted bytes become garbage, and V8 keeps as much of it for any number of clients.
        const { key } = yield* keyed("Operator", { allow: ["browse"] })
        yield* Effect.replicateEffect(greedyOf(key), 5, { concurrency: 4 })
        const before = residentBytes(muster)
        let most = 0
        yield* Effect.replicateEffect(greedyOf(muster.key), CLIENTS, { concurrency: 4 })
        const look = Effect.sync(() => {
          most = Math.max(most, residentBytes(muster) - before)
        })
        yield* Effect.repeat(Effect.andThen(expectStatus(muster, 200, "GET", "/api/system"), look), {
          times: 400
        })
        assert.isBelow(most, CLIENTS * 4 * MIB)
      }).pipe(Effect.scoped)
    )

    it.effect("a connection that has not logged in after 20 s ends", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const began = performance.now()
        let ended: number | undefined
        yield* Effect.acquireRelease(
          Effect.sync(() =>
            connectTcp(sftpOf(muster).port, "127.0.0.1")
              .on("error", () => {})
              .on("close", () => {
                ended = performance.now() - began
              })
              .resume()
          ),
          (socket) => Effect.sync(() => socket.destroy())
        )
        yield* eventually(
          () => ended,
          (value) => value !== undefined
        )
        assert.isAtLeast(ended ?? 0, 19_000)
      }).pipe(Effect.scoped)
    )

    it.effect("wrong passwords count with failures over HTTP, and six of them end a connection", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        for (let count = 0; count <= FAILURES_PER_MINUTE; count += 1)
          yield* Effect.flip(connect(muster, id, "wrong", { authHandler: ["password"] }))
        yield* expectStatus(muster, 429, "GET", "/api/system", {
          headers: { authorization: "Bearer wrong" }
        })
        yield* eventually(muster.output, (output) =>
          /failed authentications? from 127\.0\.0\.1, the first: SFTP login/.test(output)
        )
      }).pipe(Effect.scoped)
    )
  })
})

layer(sftpService(), options)("the drain of SFTP", (it) => {
  it.effect("spec 10.6: the stop of the service answers requests that have arrived", () =>
    Effect.gen(function* () {
      const muster = yield* Muster
      const id = yield* installed(muster, "kept")
      const folder = join(muster.dataDir, "node", "servers", id, "files")
      writeFileSync(join(folder, "from"), Buffer.alloc(64 * MIB, 7))
      const sftp = yield* openSftp(muster, id, muster.key)
      const from = yield* call<Buffer>((done) => sftp.open("/from", "r", done))
      const to = yield* call<Buffer>((done) => sftp.open("/to", "w", done))
      const copied = yield* call((done) => sftp.ext_copy_data(from, 0, 0, to, 0, done)).pipe(Effect.forkChild)
      yield* eventually(
        () => statSync(join(folder, "to")).size,
        (size) => size > 0
      )
      yield* muster.kill("SIGTERM")
      yield* Fiber.join(copied)
      // An overlay is not mounted after the stop.
      const [copy = ""] = globSync(join(dirname(folder), "**/to"))
      assert.strictEqual(statSync(copy).size, 64 * MIB)
    }).pipe(Effect.scoped)
  )
})

layer(sftpService(), options)("the stop of SFTP", (it) => {
  it.effect("spec 10.6: the stop of the service ends connections and does not wait for their clients", () =>
    Effect.gen(function* () {
      const muster = yield* Muster
      const id = yield* installed(muster, "kept")
      const client = yield* connect(muster, id, muster.key)
      yield* openSftp(muster, id, muster.key)
      let isClosed = false
      client.on("close", () => {
        isClosed = true
      })
      const began = performance.now()
      yield* muster.kill("SIGTERM")
      assert.isBelow(performance.now() - began, 10_000)
      yield* eventually(
        () => isClosed,
        (closed) => closed
      )
    }).pipe(Effect.scoped)
  )
})

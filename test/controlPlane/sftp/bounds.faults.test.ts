import { connect as connectTcp } from "node:net"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { FAILURES_PER_MINUTE } from "../../../src/controlPlane/http/FailedLogins.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { keyed } from "../http/support/keyed.ts"
import { connect, openSftp, sftpOf, sftpService } from "./support/sftp.ts"

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
          (value) => value !== undefined,
          "30 seconds"
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
        yield* eventually(
          muster.output,
          (output) => /failed authentications? from 127\.0\.0\.1, the first: SFTP login/.test(output),
          "20 seconds"
        )
      }).pipe(Effect.scoped)
    )
  })
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
        (closed) => closed,
        "5 seconds"
      )
    }).pipe(Effect.scoped)
  )
})

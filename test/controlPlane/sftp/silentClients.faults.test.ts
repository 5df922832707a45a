/** Connections whose other end no longer answers (spec 10.6). */
import { connect as connectTcp, type Socket } from "node:net"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { installed } from "../../support/servers.ts"
import { keyed } from "../http/support/keyed.ts"
import { connect, sftpOf, sftpService } from "./support/sftp.ts"

const socketTo = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const socket = connectTcp(port, "127.0.0.1", () => resume(Effect.succeed(socket)))
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

layer(sftpService(), { excludeTestServices: true, timeout: "89 seconds" })("silent clients of SFTP", (it) => {
  describe("spec 10.6: bounds", () => {
    it.effect(
      "a client that has not answered for a minute loses its place",
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const id = yield* installed(muster, "kept")
          const { key } = yield* keyed("Operator", { allow: ["browse"] })
          for (let count = 0; count < 16; count += 1) {
            const sock = yield* socketTo(sftpOf(muster).port)
            yield* connect(muster, id, key, { sock })
            // The peer is there, and reads nothing more.
            sock.pause()
          }
          assert.isString(yield* Effect.flip(connect(muster, id, key)))
          yield* eventually(
            Effect.match(connect(muster, id, key), { onSuccess: () => true, onFailure: () => false }),
            (isAccepted) => isAccepted,
            "75 seconds"
          )
        }).pipe(Effect.scoped),
      89_000
    )
  })
})

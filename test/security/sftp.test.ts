import { connect as connectTcp } from "node:net"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { call, connect, openSftp, sftpOf, sftpService } from "../controlPlane/sftp/support/sftp.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { installed } from "../support/servers.ts"

layer(sftpService(), { excludeTestServices: true, timeout: "60 seconds" })(
  "hostile clients of SFTP",
  (it) => {
    describe("spec 10.6: bounds", () => {
      it.effect("a session has at most 64 open files and folders", () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const id = yield* installed(muster, "kept")
          const sftp = yield* openSftp(muster, id, muster.key)
          for (let count = 0; count < 64; count += 1) yield* call<Buffer>((done) => sftp.opendir("/", done))
          assert.match(yield* Effect.flip(call<Buffer>((done) => sftp.opendir("/", done))), /64 open files/)
          assert.match(
            yield* Effect.flip(call<Buffer>((done) => sftp.open("/server.sh", "r", done))),
            /64 open files/
          )
        }).pipe(Effect.scoped)
      )

      it.effect(
        "garbage, a length beyond 256 KiB and an endless name end the subsystem, and others continue",
        () =>
          Effect.gen(function* () {
            const muster = yield* Muster
            const id = yield* installed(muster, "kept")
            const init = Buffer.from([0, 0, 0, 5, 1, 0, 0, 0, 3])
            const other = yield* openSftp(muster, id, muster.key)
            for (const bytes of [
              Buffer.from([255, 255, 255, 255, 17]),
              Buffer.from([0, 0, 0, 0]),
              Buffer.concat([init, Buffer.from([0, 64, 0, 0, 3])]),
              Buffer.from("GET / HTTP/1.1\r\n\r\n")
            ]) {
              const client = yield* connect(muster, id, muster.key)
              yield* Effect.callback<void, string>((resume) => {
                client.subsys("sftp", (error, channel) => {
                  if (error !== undefined) return resume(Effect.fail(error.message))
                  channel.on("close", () => resume(Effect.void)).resume()
                  channel.write(bytes)
                })
              })
            }
            // A path whose length exceeds the packet.
            const client = yield* connect(muster, id, muster.key)
            const answer = yield* Effect.callback<Buffer, string>((resume) => {
              client.subsys("sftp", (error, channel) => {
                if (error !== undefined) return resume(Effect.fail(error.message))
                let received = Buffer.alloc(0)
                channel.on("data", (data: Buffer) => {
                  received = Buffer.concat([received, data])
                  const at = 4 + received.readUInt32BE(0)
                  if (received.length > at + 13) resume(Effect.succeed(received.subarray(at)))
                })
                channel.write(
                  Buffer.concat([init, Buffer.from([0, 0, 0, 9, 17, 0, 0, 0, 7, 255, 255, 255, 255])])
                )
              })
            })
            assert.deepStrictEqual(
              [answer.readUInt8(4), answer.readUInt32BE(5), answer.readUInt32BE(9)],
              [101, 7, 5]
            )
            assert.strictEqual(
              (yield* call<ReadonlyArray<unknown>>((done) => other.readdir("/", done))).length,
              1
            )
          }).pipe(Effect.scoped)
      )

      it.effect("one address has at most 16 connections that have not logged in", () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const { port } = sftpOf(muster)
          const closed = new Set<number>()
          yield* Effect.acquireRelease(
            Effect.sync(() =>
              Array.from({ length: 20 }, (_, index) =>
                connectTcp(port, "127.0.0.1")
                  .on("error", () => closed.add(index))
                  .on("close", () => closed.add(index))
                  .resume()
              )
            ),
            (sockets) => Effect.sync(() => sockets.forEach((socket) => void socket.destroy()))
          )
          yield* eventually(
            () => closed.size,
            (size) => size === 4
          )
        }).pipe(Effect.scoped)
      )
    })
  }
)

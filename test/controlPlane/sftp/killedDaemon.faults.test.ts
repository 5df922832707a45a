import { randomBytes } from "node:crypto"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { files } from "../../support/moves.ts"
import { alone, connectedNode, nodeKey } from "../../support/nodes.ts"
import { installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { call, openSftp } from "./support/sftp.ts"

const MIB = 2 ** 20

layer(Muster.layer(files, { ...alone, MUSTER_SFTP_PORT: "0" }), {
  excludeTestServices: true,
  timeout: "60 seconds"
})("SFTP and a daemon that is killed", (it) => {
  describe("spec 10.6: remote nodes", () => {
    it.effect.each(["upload", "download"])(
      "%s: the client gets an error within seconds, and continues later",
      (way) =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const { key } = yield* nodeKey(muster, way)
          const dataDir = join(yield* temporaryFolder, way)
          const env = { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:27950-27959" }
          const startDaemon = connectedNode(muster, way, { dataDir, key, env })
          const daemon = yield* startDaemon
          const id = yield* installed(muster, "kept", { node_id: way })
          const sftp = yield* openSftp(muster, id, muster.key)
          const bytes = randomBytes(MIB)
          const file = yield* call<Buffer>((done) => sftp.open("/large", "w+", done))
          yield* call((done) => sftp.write(file, bytes, 0, MIB, 0, done))
          let done = 0
          const part = Effect.suspend(() =>
            way === "upload"
              ? call((end) => sftp.write(file, bytes, 0, 32_768, done * 32_768, end))
              : call((end) => sftp.read(file, Buffer.alloc(32_768), 0, 32_768, 0, end))
          )
          const transfer = yield* Effect.forever(
            Effect.map(part, () => {
              done += 1
            })
          ).pipe(Effect.flip, Effect.forkChild)
          yield* eventually(
            () => done,
            (count) => count > 50
          )
          const began = performance.now()
          yield* daemon.kill("SIGKILL")
          assert.match(
            yield* Fiber.join(transfer),
            /node of the server is not connected|No response from server/
          )
          assert.isBelow(performance.now() - began, 25_000)
          yield* startDaemon
          const again = yield* openSftp(muster, id, muster.key)
          const stats = yield* eventually(
            Effect.option(call<{ readonly size: number }>((end) => again.stat("/large", end))),
            Option.isSome
          )
          assert.isAtLeast(Option.getOrThrow(stats).size, Math.max(MIB, way === "upload" ? done * 32_768 : 0))
        }).pipe(Effect.scoped)
    )
  })
})

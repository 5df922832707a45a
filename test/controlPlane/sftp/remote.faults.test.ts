import { randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { drain, files, filesOn, node } from "../../support/moves.ts"
import { alone } from "../../support/nodes.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { call, connect, openSftp } from "./support/sftp.ts"

const service = Muster.layer(files, { ...alone, MUSTER_SFTP_PORT: "0" })

layer(service, { excludeTestServices: true, timeout: "120 seconds" })("SFTP with remote nodes", (it) => {
  describe("spec 10.6: remote nodes", () => {
    it.effect(
      "files are read, written and listed on a remote node, and a migration ends the connection",
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const first = yield* node(muster, "sftp-a", 27900)
          const id = yield* installed(muster, "kept")
          const sftp = yield* openSftp(muster, id, muster.key)
          const bytes = randomBytes(3_000_000)
          yield* call((done) => sftp.mkdir("/maps", done))
          yield* call((done) => sftp.writeFile("/maps/a.bin", bytes, done))
          assert.isTrue(readFileSync(filesOn(first, id, "maps/a.bin")).equals(bytes))
          assert.isTrue((yield* call<Buffer>((done) => sftp.readFile("/maps/a.bin", done))).equals(bytes))
          yield* call((done) => sftp.rename("/maps/a.bin", "/maps/b.bin", done))
          const names = yield* call<ReadonlyArray<{ filename: string }>>((done) =>
            sftp.readdir("/maps", done)
          )
          assert.deepStrictEqual(
            names.map(({ filename }) => filename),
            ["b.bin"]
          )
          yield* node(muster, "sftp-b", 27910)
          const client = yield* connect(muster, id, muster.key)
          let closedAt: number | undefined
          client.on("close", () => {
            closedAt = performance.now()
          })
          yield* drain(muster, "sftp-a")
          yield* eventually(
            expectStatus(muster, 200, "GET", `/api/servers/${id}`),
            ({ json }) => json.migration !== undefined || json.node_id === "sftp-b"
          )
          const began = performance.now()
          yield* eventually(
            () => closedAt,
            (value) => value !== undefined,
            "1 seconds"
          )
          assert.isBelow((closedAt ?? 0) - began, 1000)
        }).pipe(Effect.scoped)
    )
  })
})

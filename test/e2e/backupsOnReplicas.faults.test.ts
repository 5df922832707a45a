import { randomBytes } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { nodeIs, startNode } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { s3, startS3Server } from "../support/s3Server.ts"
import { expectStatus, installed, operationEnd } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

describe.skipIf(!s3.run)(`spec 12.4: a backup whose leader is killed${s3.note}`, () => {
  it.live(
    "is completed by the other replica, with exactly one manifest",
    () =>
      Effect.gen(function* () {
        const bucket = yield* startS3Server
        const { allow_private: _, ...target } = bucket.access
        const { env } = yield* definitions(files)
        const set = yield* replicaSet({ ...env, MUSTER_BACKUP_ALLOW_PRIVATE: "true" })
        // The replica that starts first is the leader.
        const [leader, other] = [yield* set.start(), yield* set.start()]
        const { key } = yield* set.key("n1", "Node")
        yield* startNode({ control: other.url, key, id: "n1" })
        for (const api of [leader, other]) yield* nodeIs(api, "n1", true)
        const server = yield* installed(other, "kept")
        yield* expectStatus(other, 201, "POST", "/api/backup-targets", { body: { id: "offsite", ...target } })
        for (let n = 0; n < 3; n++) {
          const raw = randomBytes(12 * 1024 * 1024).toString("base64")
          const path = `/api/servers/${server}/files/content?path=/noise${n}`
          yield* expectStatus(other, 201, "PUT", path, { raw })
        }
        const begun = yield* expectStatus(other, 202, "POST", `/api/servers/${server}/backups`, {
          body: { target: "offsite" }
        })
        yield* eventually(bucket.keys, (keys) => keys.some((name) => name.endsWith("part-00001")))
        yield* leader.kill("SIGKILL")
        const end = yield* operationEnd(other, begun.json.id, "180 seconds")
        assert.strictEqual(end.state, "done", end.reason)
        const manifests = (yield* bucket.keys).filter((name) => name.endsWith("manifest.json"))
        const [bases, others] = [true, false].map((isBase) =>
          manifests.filter((name) => name.includes("/base-") === isBase)
        )
        assert.lengthOf(others ?? [], 1)
        assert.isAtMost(bases?.length ?? 0, 1)
        const [backup] = (yield* expectStatus(other, 200, "GET", "/api/backups")).json
        assert.deepInclude(backup, { state: "done", target: "offsite" })
      }).pipe(Effect.scoped),
    240_000
  )
})

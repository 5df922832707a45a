/** A backup of many servers, which run, in one request. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { startService } from "../support/Service.ts"
import { s3, startS3Server } from "../support/s3Server.ts"
import { becomes, create, expectStatus, operationEnd } from "../support/servers.ts"

const SERVERS = 50

type Backup = Readonly<Record<"id" | "server_id" | "state" | "target", string>>

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

describe.skipIf(!s3.run)(`spec 12.2: ${SERVERS} running servers are backed up at once${s3.note}`, () => {
  it.live(
    "each has one backup that a verification accepts, with exactly one manifest, and runs on",
    () =>
      Effect.gen(function* () {
        const bucket = yield* startS3Server
        const { allow_private: _, ...target } = bucket.access
        const { env } = yield* definitions(files)
        const api = yield* startService({
          env: { ...env, MUSTER_BACKUP_ALLOW_PRIVATE: "true", MUSTER_OVERCOMMIT_MEMORY: "1000" }
        })
        yield* expectStatus(api, 201, "POST", "/api/backup-targets", { body: { id: "offsite", ...target } })
        const ids = yield* Effect.forEach(
          Array.from({ length: SERVERS }, (_, n) => n),
          (n) => create(api, "kept", { start: true, name: `server-${n}`, labels: { at: "once" } }),
          { concurrency: 10 }
        )
        yield* Effect.forEach(ids, (id) => becomes(api, id, "running"))
        const body = { selector: { labels: ["at=once"] }, target: "offsite" }
        const { json } = yield* expectStatus(api, 200, "POST", "/api/backups", { body })
        assert.deepStrictEqual(Object.keys(json).toSorted(), ids.toSorted())
        const backups = yield* eventually(
          Effect.map(expectStatus(api, 200, "GET", "/api/backups?limit=100"), (answer) => answer.json),
          (all: ReadonlyArray<Backup>) => all.every(({ state }) => /^(done|failed)$/.test(state)),
          "240 seconds"
        )
        assert.sameMembers(
          backups.map(({ server_id }) => server_id),
          ids
        )
        for (const backup of backups) {
          assert.deepInclude(backup, { state: "done", target: "offsite" })
          const begun = yield* expectStatus(api, 202, "POST", `/api/backups/${backup.id}/verify`)
          const end = yield* operationEnd(api, begun.json.id, "90 seconds")
          assert.strictEqual(end.state, "done", end.reason)
        }
        const folders = (yield* bucket.keys)
          .filter((key) => key.endsWith("manifest.json"))
          .map((key) => key.split("/").at(-2) ?? "")
        const [bases, own] = [true, false].map((isBase) =>
          folders.filter((name) => name.startsWith("base-") === isBase)
        )
        assert.sameMembers(
          own ?? [],
          backups.map(({ id }) => id)
        )
        assert.isAtMost(bases?.length ?? 0, 1)
        for (const id of ids) yield* becomes(api, id, "running")
      }).pipe(Effect.scoped),
    480_000
  )
})

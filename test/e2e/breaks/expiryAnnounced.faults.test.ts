import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { startService } from "../../support/Service.ts"
import { create } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const path = "/api/events?topics=expiring,deleted&cursor=0"

describe("spec 3.11: expiring", () => {
  it.live("a service that is killed announces what is due after its restart, and nothing again", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const settings = { dataDir: join(yield* temporaryFolder, "data"), env }
      const first = yield* startService(settings)
      const announced = yield* create(first, "kept", { expires_in: 15 })
      const stream = yield* subscribe(first, path)
      const before = yield* eventually(
        Effect.sync(() => stream.of(announced)),
        (events) => events.length === 1
      )
      // Due about two seconds later: the service is away then, or has just announced it.
      const due = yield* create(first, "kept", { expires_in: 62 })
      yield* first.kill("SIGKILL")
      const second = yield* startService(settings)
      const after = yield* subscribe(second, path)
      yield* eventually(
        Effect.sync(() => after.of(due)),
        (events) => events.length === 1
      )
      yield* eventsAre(after, announced, [...before, "deleted"])
      assert.strictEqual(after.of(due).length, 1)
    }).pipe(Effect.scoped)
  )
})

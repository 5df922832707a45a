import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type EventStream, eventsAre, subscribe } from "../../support/events.ts"
import { mainProcess } from "../../support/processes.ts"
import { becomes, expectStatus, logsHave, powered, running, statusOf } from "../../support/servers.ts"
import { restartingService, writeToConsole } from "./killedService.ts"

describe("spec 9.6: control plane killed at any moment", () => {
  it.live(
    "servers survive a kill -9 and are adopted with their console",
    () =>
      Effect.gen(function* () {
        const { dataDir, restarting } = yield* restartingService
        let api = yield* restarting.current
        const id = yield* running(api, "passing")
        const paused = yield* running(api, "kept")
        yield* powered(api, paused, "pause")
        yield* becomes(api, paused, "paused")
        const before = yield* mainProcess(dataDir, id)
        yield* restarting.killAndRestart({ meanwhile: writeToConsole(dataDir, id, "while away") })
        api = yield* restarting.current
        yield* becomes(api, id, "running")
        assert.deepStrictEqual(yield* mainProcess(dataDir, id), before)
        yield* logsHave(api, id, "got while away")
        yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, {
          body: { commands: ["back again"] }
        })
        yield* logsHave(api, id, "got back again")
        assert.strictEqual(yield* statusOf(api, paused), "paused")
        yield* powered(api, paused, "unpause")
        yield* becomes(api, paused, "running")
        const stream: EventStream = yield* subscribe(api, "/api/events?cursor=0")
        yield* powered(api, id, "stop")
        const up = ["installing", "offline", "starting", "running"]
        yield* eventsAre(stream, id, [...up, "stopping", "offline", "deleted"])
        yield* eventsAre(stream, paused, [...up, "paused", "running"])
      }).pipe(Effect.scoped),
    60_000
  )
})

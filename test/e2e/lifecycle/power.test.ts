import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventsAre } from "../../support/events.ts"
import { Muster } from "../../support/Muster.ts"
import { mainProcess } from "../../support/processes.ts"
import { becomes, commands, expectStatus, installed, power, powered } from "../../support/servers.ts"
import { definitions, down, follow, up } from "./setup.ts"

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("spec 3.9: POST .../power", () => {
    it.effect("an action whose state is already reached is 200 without an event", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* installed(api, "kept")
        for (const action of ["stop", "kill", "stop"]) yield* powered(api, id, action)
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        for (const action of ["start", "unpause"]) yield* powered(api, id, action)
        yield* powered(api, id, "stop")
        yield* eventsAre(stream, id, [...up, ...down])
      })
    )

    it.effect(
      "an action that the state forbids is 409; an unknown server is 404, an unknown action 422",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept")
          for (const action of ["pause", "unpause", "restart"]) {
            const answer = yield* power(api, id, action)
            assert.deepStrictEqual([action, answer.status, answer.json?.code], [action, 409, "409"])
          }
          assert.strictEqual((yield* commands(api, id, "hello")).status, 409)
          assert.strictEqual((yield* power(api, id, "explode")).status, 422)
          assert.strictEqual((yield* power(api, id, "stop", 3601)).status, 422)
          const unknown = "srv_00000000000000000000000000"
          for (const path of ["status", "stats", "logs", "install", "install/logs"]) {
            yield* expectStatus(api, 404, "GET", `/api/servers/${unknown}/${path}`)
          }
          assert.strictEqual((yield* power(api, unknown, "start")).status, 404)
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          yield* expectStatus(api, 409, "POST", `/api/servers/${id}/reinstall`)
        })
    )

    it.effect(
      "each action is checked against the state after the previous one, without a delay between them",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept")
          for (let round = 0; round < 4; round++) {
            yield* powered(api, id, "start")
            yield* powered(api, id, "stop")
            // The stop was accepted, so the server ends.
            yield* becomes(api, id, "offline")
            assert.isUndefined(yield* mainProcess(api.dataDir, id))
            yield* powered(api, id, "start")
            yield* becomes(api, id, "running")
            yield* powered(api, id, "stop")
            // The start is refused, or the server runs.
            const again = yield* power(api, id, "start")
            assert.include([200, 409], again.status)
            if (again.status === 200) {
              yield* becomes(api, id, "running")
              yield* powered(api, id, "kill")
            }
            yield* becomes(api, id, "offline")
          }
        })
    )
  })
})

import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { portText } from "../../src/contract/domain/Allocation.ts"
import { assertError, options, removed } from "../controlPlane/http/support/http.ts"
import { Muster } from "../support/Muster.ts"
import { portHeld } from "../support/ports.ts"
import { becomes, commands, installed, logsHave, powered, running } from "../support/servers.ts"
import { serviceOn, shown } from "./takenPortsScene.ts"

const one = 26_376

layer(serviceOn("127.0.0.1:26360-26371"), options)("an address of the node", (it) => {
  describe("spec 2.5: a port that another program has", () => {
    for (const protocol of ["TCP", "UDP"] as const) {
      it.effect(`is replaced before the start: ${protocol}`, () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "named")
          const [list, before] = [yield* api.request("GET", "/api/servers"), yield* shown(id)]
          const { ip, port } = before.ports.query
          yield* portHeld(ip, port, protocol)
          yield* powered(api, id, "start")
          const after = yield* shown(id)
          assert.deepStrictEqual(after.ports.game, before.ports.game)
          assert.notStrictEqual(after.ports.query.port, port)
          assert.deepStrictEqual(after.allocations, {
            ...before.allocations,
            mappings: { [ip]: [after.ports.game.port, after.ports.query.port] }
          })
          assert.isTrue(after.updated_at > before.updated_at)
          assert.notStrictEqual(
            (yield* api.request("GET", "/api/servers")).headers.get("etag"),
            list.headers.get("etag")
          )
          yield* logsHave(
            api,
            id,
            `[another program has a port of the server: ${portText({ ip, port })} to ${portText(after.ports.query)}]`
          )
          yield* logsHave(api, id, `address ${ip} ${after.ports.game.port} ${after.ports.query.port}`)
          yield* removed(id)
        }).pipe(Effect.scoped)
      )
    }

    it.effect("is replaced before the restart after a crash", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* running(api, "again")
        const { default: main } = (yield* shown(id)).allocations
        yield* portHeld(main.ip, main.port, "TCP")
        yield* commands(api, id, "exit 3")
        const { allocations } = yield* Effect.repeat(shown(id), {
          until: (now) => now.allocations.default.port !== main.port
        })
        yield* logsHave(api, id, `address ${main.ip} ${allocations.default.port} `)
        yield* becomes(api, id, "running")
        yield* removed(id)
      }).pipe(Effect.scoped)
    )
  })
})

layer(serviceOn(`127.0.0.1:${one}`), options)("one port", (it) => {
  describe("spec 2.5: a port that another program has", () => {
    it.effect(
      "without another port, the start is refused with the port and the program; later it succeeds",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept")
          const before = yield* shown(id)
          yield* Effect.gen(function* () {
            yield* portHeld("127.0.0.1", one, "TCP")
            const answer = yield* api.request("POST", `/api/servers/${id}/power`, {
              body: { action: "start" }
            })
            const { detail = "" } = assertError(answer, 409)
            assert.include(detail, `port 127.0.0.1:${one} (TCP) is taken by `)
            assert.include(detail, `(pid ${process.pid})`)
            assert.include(detail, "no other port of 127.0.0.1 on node ")
            // The refusal is recorded in the server; its ports stay.
            const { updated_at: _, ...refused } = yield* shown(id)
            assert.deepStrictEqual({ ...refused, updated_at: before.updated_at }, before)
          }).pipe(Effect.scoped)
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          assert.deepStrictEqual((yield* shown(id)).allocations, before.allocations)
          yield* removed(id)
        })
    )
  })
})

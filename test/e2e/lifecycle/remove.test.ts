import { existsSync } from "node:fs"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { mainProcess } from "../../support/processes.ts"
import { expectStatus, running, statusOf } from "../../support/servers.ts"
import { definitions, fileOf, follow, pathOf } from "./setup.ts"

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("spec 3.17: DELETE", () => {
    it.effect("a running server is stopped and deleted with its files and ports", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        const node = Effect.map(expectStatus(api, 200, "GET", "/api/nodes?ids_only=true"), (it) => it.json[0])
        const free = Effect.map(
          expectStatus(api, 200, "GET", `/api/nodes/${yield* node}`),
          (answer) => answer.json.ports_free
        )
        const before = yield* free
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        assert.strictEqual(yield* statusOf(api, id), "gone")
        assert.strictEqual(yield* free, before + 1)
        assert.isUndefined(yield* mainProcess(api.dataDir, id))
        assert.isFalse(existsSync(fileOf(api, id, ".")))
        yield* eventually(
          Effect.sync(() => stream.of(id).at(-1)),
          (last) => last === "deleted"
        )
        assert.notInclude(stream.of(id), "crash signal: killed")
        assert.strictEqual((yield* pathOf(api, id)).at(-1)?.Topic, "deleted")
        yield* expectStatus(api, 404, "DELETE", `/api/servers/${id}`)
      })
    )
  })
})

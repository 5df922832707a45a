import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { exchange, noNode, options, rawRequest, service } from "../controlPlane/http/support/http.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"

const withoutHost = (target: string) => rawRequest("POST", target).replace("host: localhost\r\n", "")

layer(service(noNode), options)("the log and unauthenticated requests", (it) => {
  describe("failed logins: unauthenticated requests do not flood the log", () => {
    it.effect("any number of requests without a valid key to any paths log one warning", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const before = api.output().length
        const requests = Array.from({ length: 60 }, (_, at) => [
          withoutHost(`/api/nodes/stranger-${at}/register`),
          rawRequest("POST", `/stranger-${at}`),
          rawRequest("POST", `/api/stranger-${at}`),
          rawRequest("DELETE", `/api/servers/stranger-${at}`, { authorization: "Bearer guess" })
        ]).flat()
        const answers = yield* Effect.forEach(requests, (bytes) => exchange(api, bytes), { concurrency: 8 })
        const statuses = new Set(answers.map((answer) => /^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]))
        assert.deepStrictEqual([...statuses].toSorted(), ["400", "401", "404", "429"])
        const lines = () =>
          api
            .output()
            .slice(before)
            .split("\n")
            .filter((line) => line.includes("stranger-"))
        yield* eventually(Effect.sync(lines), (found) => found.length > 0)
        // An authenticated write, logged after all unauthenticated requests.
        yield* api.request("DELETE", "/api/servers/known")
        yield* eventually(Effect.sync(api.output), (text) =>
          /method=DELETE path=\/api\/servers\/known status=404/.test(text)
        )
        assert.strictEqual(lines().length, 1)
        assert.match(lines()[0] ?? "", /\d+ failed authentications from 127\.0\.0\.1, the first: /)
      })
    )
  })
})

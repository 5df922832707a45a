import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { games } from "../controlPlane/http/support/http.ts"
import { locationOf, temporaryFiles, uploadsOf, version } from "../controlPlane/http/support/tus.ts"
import { definitions } from "../support/definitions.ts"
import { filesOn } from "../support/moves.ts"
import { nodeIs, startNode } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const PART = 300_000
const ROUNDS = 8
/** Requests of a round, of which every other one is at the second replica. */
const RACERS = 6

describe("spec 10.8: requests that add bytes to one upload at two replicas", () => {
  it.live(
    "exactly one of those with an offset wins, and the file has its bytes",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const set = yield* replicaSet(env)
        const replicas = [yield* set.start(), yield* set.start()]
        const [first, other] = replicas
        if (first === undefined || other === undefined) return assert.fail("no replicas")
        const { key } = yield* set.key("n1", "Node")
        const dataDir = join(yield* temporaryFolder, "n1")
        yield* startNode({ control: other.url, key, id: "n1", dataDir })
        for (const api of replicas) yield* nodeIs(api, "n1", true)
        const id = yield* installed(first, "kept")
        const upload = locationOf(yield* uploadsOf(first, id).create({ path: "/raced" }, PART * ROUNDS))
        let expected = ""
        for (let round = 0; round < ROUNDS; round += 1) {
          const contents = Array.from({ length: RACERS }, (_, racer) =>
            String.fromCharCode(97 + racer).repeat(PART)
          )
          const answers = yield* Effect.forEach(
            contents,
            (text, racer) => uploadsOf(racer % 2 === 0 ? first : other, id).patch(upload, round * PART, text),
            { concurrency: "unbounded" }
          )
          const statuses = answers.map(({ status }) => status)
          const winners = statuses.flatMap((status, racer) => (status === 204 ? [racer] : []))
          assert.strictEqual(winners.length, 1, statuses.join())
          for (const status of statuses) assert.include([204, 409, 423], status)
          expected += contents[winners[0] ?? 0]
          if (round + 1 === ROUNDS) break
          for (const api of replicas) {
            const { headers } = yield* uploadsOf(api, id).head(upload, version)
            assert.strictEqual(headers.get("upload-offset"), String(expected.length))
          }
        }
        assert.isTrue(readFileSync(filesOn({ dataDir }, id, "/raced"), "latin1") === expected)
        assert.deepStrictEqual(temporaryFiles(filesOn({ dataDir }, id, "")), [])
      }).pipe(Effect.scoped),
    90_000
  )
})

import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { nodeIs, startNode } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { expectStatus, installed } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** So many that the leader is killed while the node copies. */
const COPIES = 4_000

describe("spec 11.4: an operation whose leader is killed", () => {
  it.live(
    "is continued by the other replica, with one result and one event for each state",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        // The replica that starts first is the leader.
        const [leader, other] = [yield* set.start(), yield* set.start()]
        const { key } = yield* set.key("n1", "Node")
        yield* startNode({ control: other.url, key, id: "n1" })
        for (const api of [leader, other]) yield* nodeIs(api, "n1", true)
        const server = yield* installed(other, "kept")
        const events = yield* subscribe(other, "/api/events?topics=operation&cursor=now")
        const copies = Array.from({ length: COPIES }, (_, n) => ({ from: "/server.sh", to: `/made/f${n}` }))
        const begun = yield* expectStatus(other, 202, "POST", `/api/servers/${server}/files/copy`, {
          body: { copies }
        })
        const read = Effect.map(
          expectStatus(other, 200, "GET", `/api/operations/${begun.json.id}`),
          ({ json }) => json
        )
        yield* eventually(read, ({ progress }) => (progress?.done ?? 0) > 0)
        yield* leader.kill("SIGKILL")
        assert.strictEqual((yield* read).state, "running")
        const end = yield* eventually(read, ({ state }) => state !== "running", "180 seconds")
        assert.deepInclude(end, {
          state: "done",
          progress: { done: COPIES, total: COPIES, unit: "files" }
        })
        const made: Array<string> = []
        for (let after: string | undefined = ""; after !== undefined; after = made[made.length - 1]) {
          const path = `/api/servers/${server}/files?path=/made&after=${after}`
          const names = (yield* expectStatus(other, 200, "GET", path)).json.map(
            ({ name }: { readonly name: string }) => name
          )
          if (names.length === 0) break
          made.push(...names)
        }
        assert.deepStrictEqual(made, copies.map(({ to }) => to.slice("/made/".length)).toSorted())
        const states = yield* eventually(
          () =>
            events
              .events()
              .flatMap((event) =>
                event.Topic === "operation" && event.Cursor !== undefined ? [event.Data.payload.state] : []
              ),
          (all) => all.includes("done")
        )
        assert.deepStrictEqual(states, ["queued", "running", "done"])
      }).pipe(Effect.scoped),
    240_000
  )
})

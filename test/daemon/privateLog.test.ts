import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"
import { harness, until } from "./support.ts"

describe.runIf(process.geteuid?.() === 0)("operations, Isolation of plain processes: /var/log", () => {
  it.live("each server has its own, which stays until a reset and counts against its disk limit", () =>
    Effect.gen(function* () {
      const claimsDir = yield* temporaryFolderIn("/var/lib")
      const dataDir = yield* temporaryFolderIn("/var/lib")
      const uids = { first: 90_700, last: 90_709 }
      const { daemon, lastStatus, running } = yield* harness(
        { diskCheckSeconds: 0.1, isolation: { mode: "auto", levels: ["user+namespaces"], uids, claimsDir } },
        dataDir
      )
      const process = {
        invocation: `sh -c 'echo started >> /var/log/game.log; echo ready; while read -r line; do [ "$line" = stop ] && exit 0; head -c "$line" /dev/zero > /var/log/big; done'`
      }
      const definition = { limits: { disk_space: 2 } }
      const [id, other] = [yield* running({ process, definition }), yield* running({ process })]
      const log = (of: string, name: string) => join(dataDir, "servers", of, "log", name)
      const stop = Effect.fnUntraced(function* () {
        yield* daemon.power(id, "stop", 30)
        yield* until("offline", () => lastStatus(id) === "offline")
      })
      yield* stop()
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
      assert.deepStrictEqual(
        [id, other].map((of) => readFileSync(log(of, "game.log"), "utf8")),
        ["started\nstarted\n", "started\n"]
      )
      yield* daemon.commands(id, ["3000000"])
      yield* until("stopped", () => lastStatus(id) === "offline")
      const refused = yield* Effect.flip(daemon.power(id, "start", 30))
      assert.include("detail" in refused ? refused.detail : "", "the server uses 3.0 MB")
      yield* daemon.reset(id)
      yield* until("the logs are gone", () => !existsSync(log(id, "big")))
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
    }).pipe(Effect.scoped)
  )
})

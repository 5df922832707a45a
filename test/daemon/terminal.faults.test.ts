import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { opened, otherScenes, rootScene } from "./terminalScene.ts"
import { testTerminal } from "./terminalTests.ts"

for (const scene of otherScenes) testTerminal(scene)

describe(`spec 3.9: terminal: true`, () => {
  it.live("^C is followed by SIGINT if the process still runs", () =>
    Effect.gen(function* () {
      const { console, daemon, isIn, up } = yield* opened(rootScene)
      const id = yield* up(
        `stty -isig; trap "echo signalled; exit 0" INT; echo ready; while :; do read -r line; done`,
        {
          stop_command: "^C"
        }
      )
      yield* daemon.ask(`power ${id} stop 300`)
      yield* isIn(id)("offline")
      assert.include(console(id), "signalled")
    }).pipe(Effect.scoped)
  )
})

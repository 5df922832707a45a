import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { freePort, startNode } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

describe("MUSTER_ALLOWED_MOUNTS", () => {
  it.live("the embedded node and `muster node` warn of each path that is no folder", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const [missing, file] = [join(folder, "missing"), join(folder, "file")]
      writeFileSync(file, "")
      const env = { MUSTER_ALLOWED_MOUNTS: [folder, missing, file].join(",") }
      const service = yield* startService({ env })
      const node = yield* startNode({
        control: `http://127.0.0.1:${yield* freePort}`,
        key: "mst_none",
        id: "n",
        env
      })
      for (const { output } of [service, node]) {
        const lines = output()
          .split("\n")
          .filter((line) => line.includes("MUSTER_ALLOWED_MOUNTS"))
        assert.strictEqual(lines.length, 2, output())
        for (const path of [missing, file]) {
          const expected = `MUSTER_ALLOWED_MOUNTS: there is no folder ${path}; servers that mount from it cannot be installed until there is`
          assert.isTrue(
            lines.some((line) => line.includes(expected)),
            output()
          )
        }
      }
    }).pipe(Effect.scoped)
  )
})

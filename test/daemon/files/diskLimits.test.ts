import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { openDiskLimits } from "../../../src/daemon/files/diskLimits.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { specOf } from "../support.ts"

describe("spec 4.10: limits.disk_space with project quotas", () => {
  it.effect("the next start sets the quota of a changed limit, also after a restart of the daemon", () =>
    Effect.gen(function* () {
      const servers = yield* temporaryFolder
      const folder = join(servers, "s1")
      mkdirSync(folder)
      /** By project, in MB. */
      const quotas = new Map<number, number>()
      let calls = 0
      const open = openDiskLimits(servers, () =>
        Effect.succeed({
          stopsRoot: true,
          begin: () => Effect.void,
          limit: (project, bytes) =>
            Effect.sync(() => {
              calls += 1
              quotas.set(project, bytes / 1_000_000)
            })
        })
      )
      const spec = (disk_space: number) => specOf({ definition: { limits: { disk_space } } })
      const first = yield* open
      yield* first.begin(folder, spec(2), folder)
      assert.deepStrictEqual([...quotas.values()], [2])
      yield* first.confirm(folder, spec(2))
      assert.strictEqual(calls, 1, "an unchanged limit is not set again")
      yield* first.confirm(folder, spec(10))
      assert.deepStrictEqual([...quotas.values()], [10], "the project stays")
      assert.isTrue(first.isEnforced(folder, false))
      // The limit was changed while the daemon was down.
      const second = yield* open
      assert.isFalse(second.isEnforced(folder, false))
      yield* second.confirm(folder, spec(5))
      assert.deepStrictEqual([...quotas.values()], [5])
      yield* second.confirm(folder, spec(0))
      assert.deepStrictEqual([...quotas.values()], [0], "no limit")
    }).pipe(Effect.scoped)
  )
})

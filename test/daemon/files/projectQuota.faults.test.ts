import { spawnSync } from "node:child_process"
import { readdirSync, rmSync, statSync } from "node:fs"
import { join } from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { fileLimit } from "../../../src/contract/domain/Limits.ts"
import { describeOtherKernel, describeQuotas } from "./quotaKernel.ts"
import { ownUser, quotaDisks, runAs, scene } from "./scene.ts"

/** In a kernel that has project quotas. */
const rules = () => {
  const refused = /quota exceeded|No space left/

  for (const [name, disk] of Object.entries(quotaDisks)) {
    for (const [way, options] of Object.entries({ overlay: {}, copies: { storage: "copy" } } as const)) {
      it.live(`${name}, ${way}: the file system refuses bytes and files over the limit of a server`, () =>
        Effect.gen(function* () {
          const dir = yield* disk
          const { server, service, serversDir } = yield* scene(options, dir)
          const user = ownUser(70_001)
          const limited = (disk_space: number) =>
            server({ limits: { disk_space } }, join(serversDir, "s"), user)
          const { files, folder, make, open, spec } = limited(2)
          yield* make
          yield* open
          const sh = (script: string) => runAs(user.uid, files, script)

          assert.match(sh("head -c 3000000 /dev/zero > big"), refused)
          assert.isAtMost(statSync(join(files, "big")).size, 2_000_000)
          sh("rm big")
          const most = fileLimit(2_000_000)
          assert.match(sh(`i=0; while [ $i -lt ${2 * most} ] && : > f$i; do i=$((i + 1)); done`), refused)
          const made = readdirSync(files).filter((file) => /^f\d/.test(file)).length
          assert.isAtMost(made, most)
          assert.isAtLeast(made, most - 10, "the other files and folders of the server count")
          assert.isUndefined(yield* service.overLimit(folder, spec))
          sh("rm f*")

          yield* limited(4).open
          assert.strictEqual(sh("head -c 3000000 /dev/zero > big"), "", "the limit was raised")
          yield* service.close(folder)
          const gone = join(serversDir, ".gone")
          yield* service.moveAside(folder, gone)
          rmSync(gone, { recursive: true })
          yield* service.forget(gone)
          const { stdout } = spawnSync("repquota", ["-P", "-v", dir], { encoding: "utf8" })
          assert.match(stdout, /^#0 /m)
          assert.notMatch(stdout, /^#\d{7,}\s+\S+\s+\d+\s+\d+\s+[1-9]/m, "the quota ends with the server")
        }).pipe(Effect.scoped)
      )
    }
  }
}

describeQuotas("spec 4.10: limits by project quotas", rules)
describeOtherKernel(
  "spec 4.10, 10.3: project quotas",
  [import.meta.filename, join(import.meta.dirname, "../access/noRoom.faults.test.ts")],
  9
)

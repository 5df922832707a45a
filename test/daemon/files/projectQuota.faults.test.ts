import { spawnSync } from "node:child_process"
import { chmodSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { fileLimit } from "../../../src/contract/domain/Limits.ts"
import { runToEnd } from "../../support/child.ts"
import { debianProgram } from "../../support/debianPrograms.ts"
import { root } from "../../support/docs.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { ownUser, quotaDisks, runAs, scene } from "./scene.ts"

const isRoot = process.getuid?.() === 0
const setquota = debianProgram("setquota", "quota")
const uml = debianProgram("linux.uml", "user-mode-linux")
const can = (disk: (typeof quotaDisks)["xfs"]) =>
  Effect.map(Effect.exit(Effect.scoped(disk)), (exit) => isRoot && Exit.isSuccess(exit))
/** Whether the kernel of this machine has project quotas. */
const here = await Effect.runPromise(Effect.all([can(quotaDisks.ext4), can(quotaDisks.xfs)])).then((kinds) =>
  kinds.every(Boolean)
)

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

/** The first program of the other kernel, on the files of this machine. */
const init = (folder: string) => `#!/bin/bash
export PATH=${process.env.PATH}:/usr/sbin:/sbin HOME=/mnt TMPDIR=/mnt CI=true NO_COLOR=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /mnt
for module in quota_tree quota_v2 overlay loop; do
  busybox insmod "$(find /usr/lib/uml/modules/$(uname -r) -name "$module.ko")"
done
cd ${root}
${process.execPath} node_modules/vitest/vitest.mjs run --project faults ${import.meta.filename} < /dev/null > ${folder}/output 2>&1
echo "ended with $?"
busybox poweroff -f
`

const inAnotherKernel = () => {
  it.live(
    "the rules hold in user-mode Linux, where the kernel of this machine has no project quotas",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        writeFileSync(join(folder, "init"), init(folder))
        chmodSync(join(folder, "init"), 0o755)
        const machine = ["mem=2G", "root=none", "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "con=null"]
        const own = [`init=${folder}/init`, `uml_dir=${folder}/uml`, "con0=null,fd:1"]
        const printed = yield* runToEnd([uml.path, ...machine, ...own], { cwd: folder }, "240 seconds")
        const output = spawnSync("cat", [join(folder, "output")], { encoding: "utf8" }).stdout
        assert.include(printed, "ended with 0", printed + output)
        assert.match(output, /Tests +4 passed/)
      }).pipe(Effect.scoped),
    260_000
  )
}

if (here && setquota.run) describe("spec 4.10: limits by project quotas", rules)
else
  describe.runIf(isRoot && uml.run)(`spec 4.10: project quotas in another kernel${uml.note}`, inAnotherKernel)

/** Rules that need project quotas: here, or in user-mode Linux where the kernel of this machine has none. */
import { spawnSync } from "node:child_process"
import { chmodSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { runToEnd } from "../../support/child.ts"
import { debianProgram } from "../../support/debianPrograms.ts"
import { root } from "../../support/docs.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { quotaDisks } from "./scene.ts"

const isRoot = process.getuid?.() === 0
const setquota = debianProgram("setquota", "quota")
const uml = debianProgram("linux.uml", "user-mode-linux")
/** Whether user-mode Linux of version 6.1 cannot save the registers of this processor. */
const hasTiles = readFileSync("/proc/cpuinfo", "utf8").includes(" amx_tile")
const umlNote = hasTiles ? " (skipped: needs a processor without AMX for user-mode Linux)" : uml.note
const can = (disk: (typeof quotaDisks)["xfs"]) =>
  Effect.map(Effect.exit(Effect.scoped(disk)), (exit) => isRoot && Exit.isSuccess(exit))
/** Whether the kernel of this machine has project quotas. */
const here = await Effect.runPromise(Effect.all([can(quotaDisks.ext4), can(quotaDisks.xfs)])).then((kinds) =>
  kinds.every(Boolean)
)

/** The first program of the other kernel, on the files of this machine. */
const init = (folder: string, files: string) => `#!/bin/bash
export PATH=${process.env.PATH}:/usr/sbin:/sbin HOME=/mnt TMPDIR=/mnt CI=true NO_COLOR=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /mnt
for module in quota_tree quota_v2 overlay loop; do
  busybox insmod "$(find /usr/lib/uml/modules/$(uname -r) -name "$module.ko")"
done
cd ${root}
${process.execPath} node_modules/vitest/vitest.mjs run --project faults --maxWorkers 1 --no-isolate ${files} < /dev/null > ${folder}/output 2>&1
echo "ended with $?"
busybox poweroff -f
`

/** Runs files of tests in another kernel, in one start of it, which takes as long as their tests. */
const inAnotherKernel = (files: ReadonlyArray<string>, tests: number) => () => {
  it.live(
    "the rules hold in user-mode Linux, where the kernel of this machine has no project quotas",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        writeFileSync(join(folder, "init"), init(folder, files.join(" ")))
        chmodSync(join(folder, "init"), 0o755)
        const machine = ["mem=2G", "root=none", "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "con=null"]
        const own = [`init=${folder}/init`, `uml_dir=${folder}/uml`, "con0=null,fd:1"]
        const printed = yield* runToEnd([uml.path, ...machine, ...own], { cwd: folder }, "480 seconds")
        const output = spawnSync("cat", [join(folder, "output")], { encoding: "utf8" }).stdout
        assert.include(printed, "ended with 0", printed + output)
        assert.match(output, new RegExp(`Tests +${tests} passed`))
      }).pipe(Effect.scoped),
    500_000
  )
}

/** Whether this kernel has project quotas, and the programs that set them. */
const inThisKernel = here && setquota.run

/** Describes rules here; where this kernel has no project quotas, `describeOtherKernel` runs their file. */
export const describeQuotas = (title: string, rules: () => void) => {
  if (inThisKernel) describe(title, rules)
}

/** Describes the run of files in another kernel, which have as many tests there as `tests`. */
export const describeOtherKernel = (title: string, files: ReadonlyArray<string>, tests: number) => {
  if (!inThisKernel)
    describe.runIf(isRoot && uml.run && !hasTiles)(
      `${title} in another kernel${umlNote}`,
      inAnotherKernel(files, tests)
    )
}

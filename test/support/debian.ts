/** Minimal installations of Debian, for tests that need a machine of their own. */
import { existsSync, mkdirSync, renameSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { runToEnd } from "./child.ts"
import { debianProgram } from "./debianPrograms.ts"
import { temporaryFolderIn } from "./temporaryFolder.ts"

export const debootstrap = debianProgram("debootstrap", "debootstrap")

/** Installations as archives, which later tests and runs unpack: `debootstrap` takes half a minute. */
const made = "/tmp/muster-test-debian"

/**
 * Installs a release of Debian with more packages into a folder that does not exist yet.
 *
 * @error ServiceFailed `debootstrap` fails, for example because its mirror cannot be reached
 */
export const installDebian = Effect.fnUntraced(function* (
  release: string,
  folder: string,
  packages: ReadonlyArray<string> = []
) {
  const archive = join(made, `${[release, ...packages].join("+")}.tar`)
  if (!existsSync(archive)) {
    mkdirSync(made, { recursive: true })
    const work = yield* temporaryFolderIn(made, 0o755)
    const [base, packed] = [join(work, "root"), join(work, "root.tar")]
    const include = packages.length === 0 ? [] : [`--include=${packages.join()}`]
    const command = [debootstrap.path, "--variant=minbase", ...include, release, base] as const
    yield* runToEnd(command, { cwd: work }, "300 seconds")
    yield* runToEnd(["tar", "-C", base, "-cf", packed, "."], { cwd: work })
    // Two tests may make the same archive at once; each has a complete one.
    renameSync(packed, archive)
  }
  mkdirSync(folder)
  yield* runToEnd(["tar", "-C", folder, "-xpf", archive], { cwd: folder })
}, Effect.scoped)

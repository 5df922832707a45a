import { spawnSync } from "node:child_process"
import { chmodSync, closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect, type Scope } from "effect"
import { unmountBelow } from "../mounts.ts"
import { temporaryFolder } from "../temporaryFolder.ts"
import { type Fault, FaultFailed } from "./Fault.ts"

/** Why there is no disk to fill; undefined when there is. */
const missing = process.getuid?.() === 0 ? undefined : "only root can mount a file system"

/** Tests run where a file system can be mounted; in CI that has to be so. */
export const withSmallDisk = missing === undefined || process.env.CI !== undefined
/** Goes into the title of what does not run without one. */
export const smallDiskNote = missing === undefined ? "" : ` (needs a small disk: ${missing})`

export interface SmallDisk {
  /** A folder on it that does not exist yet: a data folder. */
  readonly path: string
  /** Not a byte is left; healed: all that this took is free again. */
  readonly full: Fault
}

const PAGE = 4096

/** Writes until the disk says that there is no more; small pieces last, so that nothing is left. */
const fill = (file: string) => {
  const out = openSync(file, "a")
  try {
    for (const size of [256 * PAGE, PAGE]) {
      const zeros = Buffer.alloc(size)
      try {
        while (writeSync(out, zeros) === size);
      } catch (error) {
        if (!(error instanceof Error && "code" in error && error.code === "ENOSPC")) throw error
      }
    }
  } finally {
    closeSync(out)
  }
}

/** A file system in memory of so many MiB; unmounted with the scope. */
export const smallDisk = (mib: number): Effect.Effect<SmallDisk, FaultFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const root = join(yield* temporaryFolder, "disk")
    const filler = join(root, "filler")
    yield* Effect.acquireRelease(
      Effect.suspend(() => {
        mkdirSync(root)
        // Servers that do not run as root find their folder on it, too.
        chmodSync(dirname(root), 0o711)
        const { status, stderr } = spawnSync(
          "mount",
          ["-t", "tmpfs", "-o", `size=${mib}m,mode=0755`, "tmpfs", root],
          {
            encoding: "utf8"
          }
        )
        return status === 0 ? Effect.void : new FaultFailed({ message: `mount: ${stderr}` })
      }),
      () => Effect.sync(() => unmountBelow(root))
    )
    return {
      path: join(root, "data"),
      full: {
        name: "the disk is full",
        inject: Effect.try({
          try: () => fill(filler),
          catch: (cause) => new FaultFailed({ message: `the disk cannot be filled: ${cause}` })
        }),
        heal: Effect.sync(() => rmSync(filler, { force: true }))
      }
    }
  })

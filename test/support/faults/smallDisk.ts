import { spawnSync } from "node:child_process"
import { chmodSync, closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect, type Scope } from "effect"
import { unmountBelow } from "../mounts.ts"
import { temporaryFolder } from "../temporaryFolder.ts"
import { type Fault, FaultFailed } from "./Fault.ts"

/** The reason why no file system can be mounted; undefined if one can. */
const missing = process.getuid?.() === 0 ? undefined : "only root can mount a file system"

/** Tests run if a file system can be mounted; in CI this is required. */
export const withSmallDisk = missing === undefined || process.env.CI !== undefined
/** Appended to the titles of tests that require a small disk. */
export const smallDiskNote = missing === undefined ? "" : ` (needs a small disk: ${missing})`

export interface SmallDisk {
  /** A path on the disk that does not exist yet, for a data folder. */
  readonly path: string
  /** No free byte; healed: all space is freed. */
  readonly full: Fault
}

const PAGE = 4096

/** Writes until the disk is full, with small chunks last to use every byte. */
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

/** A file system in memory of that many MiB; unmounted with the scope. */
export const smallDisk = (mib: number): Effect.Effect<SmallDisk, FaultFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const root = join(yield* temporaryFolder, "disk")
    const filler = join(root, "filler")
    yield* Effect.acquireRelease(
      Effect.suspend(() => {
        mkdirSync(root)
        // Servers that do not run as root must be able to enter it.
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

/** The temporary folders of the tests. */
import { chmodSync, mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { removeFolder } from "./mounts.ts"

/** A new folder in a parent folder; the scope unmounts the mounts in it and removes it. */
export const temporaryFolderIn = (parent: string, mode = 0o700) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const path = mkdtempSync(join(parent, "muster-test-"))
      chmodSync(path, mode)
      return path
    }),
    (path) => Effect.sync(() => removeFolder(path))
  )

export const temporaryFolder = temporaryFolderIn(tmpdir())

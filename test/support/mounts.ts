/** Folders of tests may have mounts in them; what is mounted there is never removed with them. */
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, realpathSync, rmSync } from "node:fs"
import { below, MOUNT_TABLE, parseMountTable } from "../../src/daemon/disk/mountTable.ts"

/** Mounts at a folder and below it, in order of mounting. */
export const mountsBelow = (folder: string) =>
  existsSync(folder) ? below(realpathSync(folder), parseMountTable(readFileSync(MOUNT_TABLE, "latin1"))) : []

export const unmountBelow = (folder: string): void => {
  for (const { path } of mountsBelow(folder).toReversed()) spawnSync("umount", ["-i", "-c", "-l", path])
}

/** Removes a folder of a test, without what is mounted in it. */
export const removeFolder = (folder: string): void => {
  unmountBelow(folder)
  const [left] = mountsBelow(folder)
  if (left !== undefined) throw new Error(`still mounted: ${left.path}`)
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
}

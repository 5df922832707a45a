/** Removal of test folders that contain mounts, without the mounted files. */
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, realpathSync, rmSync } from "node:fs"
import { below, MOUNT_TABLE, parseMountTable } from "../../src/daemon/disk/mountTable.ts"

/** Mounts at a folder and below it, in order of mounting. */
export const mountsBelow = (folder: string) =>
  existsSync(folder) ? below(realpathSync(folder), parseMountTable(readFileSync(MOUNT_TABLE, "latin1"))) : []

export const unmountBelow = (folder: string): void => {
  for (const { path } of mountsBelow(folder).toReversed()) spawnSync("umount", ["-i", "-c", "-l", path])
}

/** Removes a folder without the contents of mounts in it. */
export const removeFolder = (folder: string): void => {
  unmountBelow(folder)
  const [left] = mountsBelow(folder)
  if (left !== undefined) throw new Error(`still mounted: ${left.path}`)
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
}

import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { reserveSize } from "../../shared/work/diskSpace.ts"
import { IoError, io } from "./fsio.ts"

/** Fails if the disk of a folder has less free space than must stay free. */
export const checkFreeSpace = Effect.fnUntraced(function* (folder: string, free?: number) {
  const disk = yield* io(`read the free space of ${folder}`, () => fs.statfs(folder))
  // Without the blocks that a file system reserves for root: servers cannot use them.
  const freeBytes = disk.bavail * disk.bsize
  const reserved = free ?? reserveSize(disk.blocks * disk.bsize)
  if (freeBytes >= reserved) return
  return yield* new IoError({
    code: "ENOSPC",
    message: `the files do not fit on the disk of the node: ${megabytes(freeBytes)} are free, of which ${megabytes(reserved)} are kept`
  })
})

import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { io } from "./fsio.ts"

/** Whether the disk of a folder has no room left, where whoever has met that cannot say so. */
export const isFull = (folder: string): Effect.Effect<boolean> =>
  io("look at the disk", () => fs.statfs(folder)).pipe(
    Effect.map((disk) => disk.bavail * disk.bsize < 1024 * 1024),
    Effect.orElseSucceed(() => false)
  )

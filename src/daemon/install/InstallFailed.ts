import * as fs from "node:fs/promises"
import { Data, Effect } from "effect"
import { io } from "../files/fsio.ts"

/** An installation that did not succeed; `reason` is what `failure_reason` says. */
export class InstallFailed extends Data.TaggedError("InstallFailed")<{
  readonly reason: string
  readonly exit_code?: number
}> {}

/** Whether the disk of a folder has no room left: what a script says about it is in the log only. */
export const isFull = (folder: string): Effect.Effect<boolean> =>
  io("look at the disk", () => fs.statfs(folder)).pipe(
    Effect.map((disk) => disk.bavail * disk.bsize < 1024 * 1024),
    Effect.orElseSucceed(() => false)
  )

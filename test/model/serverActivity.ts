/** Changes that servers make on their nodes: starts, ends, crashes and failed installations. */
import { Effect } from "effect"
import type { Random } from "../support/random.ts"
import type { Recorder } from "./Recorder.ts"
import type { Setup } from "./setup.ts"

const PAUSE = 150

/** Runs until it is interrupted. */
export const serverActivity = (setup: Setup, recorder: Recorder, random: Random) => {
  const act = Effect.sync(() => {
    const node = setup.nodes[random.below(setup.nodes.length)]
    if (node === undefined) return
    const { brain, id } = node
    // Some later installations fail.
    brain.installs = random.below(8) === 0 ? "failed" : "ready"
    const ids = [...brain.instances.keys()]
    const server = ids[random.below(ids.length)]
    const status = server === undefined ? undefined : brain.instances.get(server)?.status
    if (server === undefined || (status !== "running" && status !== "starting")) return
    recorder.nodeAction({ node: id, server })
    if (random.below(2) === 0) brain.crash(server)
    else {
      brain.move(server, "stopping")
      brain.move(server, "offline")
    }
  })
  return Effect.forever(
    Effect.andThen(
      act,
      Effect.suspend(() => Effect.sleep(random.below(2 * PAUSE)))
    )
  )
}

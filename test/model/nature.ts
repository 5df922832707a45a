/** Changes that servers make on their nodes: starts, ends, crashes and failed installations. */
import { Effect } from "effect"
import type { Random } from "../support/random.ts"
import type { Recorder } from "./Recorder.ts"
import type { World } from "./world.ts"

const PAUSE = 150

/** Runs until it is interrupted. */
export const nature = (world: World, recorder: Recorder, random: Random) => {
  const act = Effect.sync(() => {
    const node = world.nodes[random.below(world.nodes.length)]
    if (node === undefined) return
    const { brain, id } = node
    // Some later installations fail.
    brain.installs = random.below(8) === 0 ? "failed" : "ready"
    const ids = [...brain.instances.keys()]
    const server = ids[random.below(ids.length)]
    const status = server === undefined ? undefined : brain.instances.get(server)?.status
    if (server === undefined || (status !== "running" && status !== "starting")) return
    recorder.deed({ node: id, server })
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

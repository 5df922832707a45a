/** One Docker engine for a whole test run. */
import { Effect } from "effect"
import type { TestProject } from "vitest/node"
import { provideShared } from "./sharedOfRun.ts"

export default (project: TestProject) =>
  provideShared(
    project,
    "docker",
    // Loaded with the engine: most runs need neither.
    Effect.flatMap(
      Effect.promise(() => import("./dockerEngine.ts")),
      ({ engineOfRun }) => engineOfRun
    )
  )

import { Effect } from "effect"
import type { Service } from "../support/Service.ts"
import { BenchFailed } from "./harness.ts"

/** Returns the number of commits of a service since its start. */
export const commitsOf = Effect.fnUntraced(function* (service: Service) {
  const { text } = yield* service.request("GET", "/metrics")
  const commits = /^muster_store_commits_total(?:\{[^}]*\})? (\d+)/m.exec(text)?.[1]
  if (commits === undefined)
    return yield* new BenchFailed({ message: "/metrics has no muster_store_commits_total" })
  return Number(commits)
})

import { Metric } from "effect"

/** Write transactions committed; with {@link storeMutations} it says how many writes share one. */
export const storeCommits = Metric.counter("muster_store_commits", {
  description: "Write transactions committed",
  incremental: true
})

/** Mutations that have been part of a committed transaction. */
export const storeMutations = Metric.counter("muster_store_mutations", {
  description: "Mutations that were part of a committed write transaction",
  incremental: true
})

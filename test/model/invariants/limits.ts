import type { Invariant, Operation } from "../History.ts"

/** Whether a response shows or changes nothing of others: as if their servers did not exist. */
const isHarmless = ({ ids = [], malformed, outcomes, requested, status }: Operation): boolean => {
  // No response, or the database is unavailable or slow.
  if (status === undefined || status === 503 || status === 504) return true
  if (malformed !== undefined) return false
  switch (requested.kind) {
    case "list":
      return status === 200 && ids.length === 0
    case "drain":
    case "back-up":
      // The key has no such right.
      return status === 403
    case "power-many":
    case "delete-many":
      return status === 200 && [...(outcomes ?? [])].every(([, one]) => one.status === 404)
    default:
      return status === 404
  }
}

/** An action that was refused and yet had an effect violates other invariants. */
export const limits: Invariant = {
  name: "a limited key reads and changes no server of others",
  problems: ({ intrusions }) =>
    intrusions
      .filter((one) => !isHarmless(one))
      .map(
        ({ detail = "", ids = [], n, requested, status }) =>
          `request ${n} ${JSON.stringify(requested)}: ${status} ${detail} ${ids.join()}`
      )
}

/** Why the last start of a server was refused, or why its node has stopped it. */
import { Schema } from "effect"
import { NodeCertainTime, NodeText } from "./NodeText.ts"

const code = NodeText.annotate({ description: "The status of the refusal as a string, as in error bodies." })
const hint = NodeText.annotate({ description: "The next step." })
const since = NodeCertainTime

export const ShownProblem = Schema.Struct({ code, detail: NodeText, hint, since }).annotate({
  identifier: "Problem"
})

/** A problem with the next step. It remains until the server starts, or its definition or files change. */
export const Problem = Schema.Struct({ code, detail: NodeText, hint, since })
export type Problem = typeof Problem.Type

/** Returns the problem after a refusal; a repeated refusal keeps the time of the first. `since` is RFC 3339. */
export const problemAfter = (
  before: Problem | null | undefined,
  { detail, hint, status }: { readonly status: number; readonly detail: string; readonly hint: string },
  since: string
): Problem => {
  // A failure of the node is 502 to callers.
  const code = `${status === 500 ? 502 : status}`
  return before?.code === code && before.detail === detail ? before : { code, detail, hint, since }
}

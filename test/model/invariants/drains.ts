import type { Invariant, Operation } from "../History.ts"

interface Drained {
  readonly node: string
  /** The time of the acknowledgement, and of the next request to drain or undrain. */
  readonly from: Operation
  readonly to: number
}

/** The intervals in which each node was certainly drained. */
const drainedTimes = (operations: ReadonlyArray<Operation>): ReadonlyArray<Drained> => {
  const words = operations
    .filter(({ requested }) => requested.kind === "drain")
    .toSorted((a, b) => a.sent - b.sent)
  return words.flatMap((from) => {
    if (from.requested.kind !== "drain" || !from.requested.drained || from.status !== 200) return []
    const { node } = from.requested
    const next = words.find(
      ({ requested, n, sent }) =>
        n !== from.n && requested.kind === "drain" && requested.node === node && sent >= from.sent
    )
    return [{ node, from, to: next?.sent ?? Number.POSITIVE_INFINITY }]
  })
}

/** No server is placed on a drained node unless the request names the node. */
export const drains: Invariant = {
  name: "a drained node gets only servers that name it",
  problems: ({ operations }) => {
    const times = drainedTimes(operations)
    const first = new Map<string, number>()
    for (const { requested, sent } of operations) {
      if (requested.kind === "create")
        first.set(requested.key, Math.min(sent, first.get(requested.key) ?? sent))
    }
    const received = new Set<string>()
    return operations.flatMap(({ requested, ended, id, n, node_id, status }) => {
      if (requested.kind !== "create" || status !== 202 || requested.body.node_id !== undefined) return []
      // A repeated request returns the result of the first one.
      const sent = first.get(requested.key) ?? 0
      const drained = times.find(
        ({ from, node, to }) => node === node_id && from.ended <= sent && ended <= to
      )
      if (drained === undefined || received.has(requested.key)) return []
      received.add(requested.key)
      return [
        `${id} (operation ${n}, first sent at ${sent} ms) was placed on ${node_id}, drained since ${drained.from.ended} ms (operation ${drained.from.n})`
      ]
    })
  }
}

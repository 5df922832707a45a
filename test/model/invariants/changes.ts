import type { History, Invariant, Operation } from "../History.ts"

type Operations = Pick<History, "operations">

const patchesOf = ({ operations }: Operations) =>
  operations.flatMap((operation) =>
    operation.requested.kind === "patch" ? [{ ...operation, requested: operation.requested }] : []
  )

/** The servers for which an expiry was requested. */
export const withExpiry = (history: Operations): ReadonlySet<string> =>
  new Set(
    patchesOf(history).flatMap(({ requested }) =>
      typeof requested.body.expires_in === "number" ? [requested.server] : []
    )
  )

/** Whether a change without an acknowledgement may have been made. */
const isUncertain = ({ status, unchanged }: Operation): boolean =>
  status === undefined || (status >= 500 && unchanged !== true)

/** Each label has the value of its last acknowledged change, or of one whose outcome is unknown. */
export const lastPatch: Invariant = {
  name: "the last change of a label decides its value",
  problems: (history) => {
    const patches = Map.groupBy(patchesOf(history), ({ requested }) => requested.server)
    return history.end.tables.servers.flatMap(({ id, labels }) => {
      const ofServer = patches.get(id) ?? []
      const keys = new Set([
        ...Object.keys(labels ?? {}),
        ...ofServer.flatMap(({ requested }) => Object.keys(requested.body.labels ?? {}))
      ])
      return [...keys].flatMap((key) => {
        const writes = ofServer.filter(({ requested }) => requested.body.labels?.[key] !== undefined)
        const last = writes.findLast(({ status }) => status === 200)
        const possible = [last, ...writes.filter(isUncertain)].map(
          (write) => write?.requested.body.labels?.[key]
        )
        const value = labels?.[key]
        return possible.includes(value)
          ? []
          : [`label ${key} of ${id} is ${value}; operation ${last?.n} made it ${possible[0]}`]
      })
    })
  }
}

/** A server whose expiry was removed does not expire. */
export const expiry: Invariant = {
  name: "a removed expiry stays removed",
  problems: (history) => {
    const patches = Map.groupBy(patchesOf(history), ({ requested }) => requested.server)
    return history.end.tables.servers.flatMap(({ expires_at, id }) => {
      const changes = (patches.get(id) ?? []).filter(
        ({ requested }) => requested.body.expires_in !== undefined
      )
      const last = changes.findLast(({ status }) => status === 200)
      const isPossible = changes.some(
        (change) => isUncertain(change) && change.requested.body.expires_in !== null
      )
      return expires_at === null || isPossible || last?.requested.body.expires_in !== null
        ? []
        : [`${id} expires at ${expires_at}; operation ${last.n} removed its expiry`]
    })
  }
}

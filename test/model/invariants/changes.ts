import type { History, Invariant, Operation, PatchBody } from "../History.ts"

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

/** The fields that a client sets. */
const written = {
  label: (body: PatchBody) => body.labels,
  variable: (body: PatchBody) => body.overrides?.env
} as const

/** Each label and variable has the value of its last acknowledged change, or of one whose outcome is unknown. */
export const lastPatch: Invariant = {
  name: "the last change of a label or variable decides its value",
  problems: (history) => {
    const patches = Map.groupBy(patchesOf(history), ({ requested }) => requested.server)
    return history.end.tables.servers.flatMap(({ id, labels, overrides }) => {
      const ofServer = patches.get(id) ?? []
      const { OPERATION: _, ...env } = overrides?.env ?? {}
      return [
        ...lastWrites("label", id, labels ?? {}, ofServer),
        ...lastWrites("variable", id, env, ofServer)
      ]
    })
  }
}

type Patch = ReturnType<typeof patchesOf>[number]

const lastWrites = (
  what: keyof typeof written,
  id: string,
  values: Readonly<Record<string, string>>,
  patches: ReadonlyArray<Patch>
): ReadonlyArray<string> => {
  const valuesOf = (patch: Patch | undefined) =>
    patch === undefined ? {} : (written[what](patch.requested.body) ?? {})
  const keys = new Set([...Object.keys(values), ...patches.flatMap((patch) => Object.keys(valuesOf(patch)))])
  return [...keys].flatMap((key) => {
    const writes = patches.filter((patch) => valuesOf(patch)[key] !== undefined)
    const last = writes.findLast(({ status }) => status === 200)
    const possible = [last, ...writes.filter(isUncertain)].map((write) => valuesOf(write)[key])
    return possible.includes(values[key])
      ? []
      : [`${what} ${key} of ${id} is ${values[key]}; operation ${last?.n} made it ${possible[0]}`]
  })
}

/** The definition of a server has its overrides. */
export const overridden: Invariant = {
  name: "a definition has the overrides of its server",
  problems: ({ end }) =>
    end.tables.servers.flatMap(({ definition, id, overrides }) => {
      const { env = {}, limits = {} } = overrides ?? {}
      const missing = Object.entries(env).filter(([name, value]) => definition.env[name] !== value)
      return [
        ...missing.map(
          ([name, value]) => `${id} overrides ${name} with ${value}; its definition: ${definition.env[name]}`
        ),
        ...(limits.memory_limit === undefined || limits.memory_limit === definition.limits.memory_limit
          ? []
          : [
              `${id} overrides its memory with ${limits.memory_limit}; its definition: ${definition.limits.memory_limit}`
            ])
      ]
    })
}

/** A rollout that is over has done all its servers, or says which failed, and holds none. */
export const rollouts: Invariant = {
  name: "a rollout that is over is complete",
  problems: ({ end: { tables } }) => [
    ...tables.rollouts.flatMap(({ done, id, state, total }) =>
      state === "done" && done !== total ? [`rollout ${id} is done with ${done} of ${total}`] : []
    ),
    ...tables.rollout_servers.flatMap(({ active, rollout_id, server_id }) =>
      active === 1 ? [`rollout ${rollout_id} holds ${server_id}`] : []
    )
  ]
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

import { isEphemeral, kinds } from "../definitions.ts"
import type { Invariant } from "../History.ts"
import { portsOf, sentKey } from "../Snapshot.ts"
import { withExpiry } from "./changes.ts"
import { undeleted } from "./kept.ts"
import { firstNodes, givenUp, timelinesOf } from "./timelines.ts"

/** One idempotency key creates one server, at any replica and for any number of requests. */
export const idempotency: Invariant = {
  name: "one Idempotency-Key creates one server",
  problems: ({ end, operations }) => {
    const problems: Array<string> = []
    const ids = new Map<string, string>()
    const keys = new Map<string, string>()
    for (const { requested, id, n, status } of operations) {
      if (requested.kind !== "create" || status !== 202 || id === undefined) continue
      const before = ids.get(requested.key) ?? id
      ids.set(requested.key, before)
      if (before !== id) problems.push(`operation ${n}: ${requested.key} created ${before}, and now ${id}`)
      const key = keys.get(id) ?? requested.key
      keys.set(id, key)
      if (key !== requested.key)
        problems.push(`operation ${n}: ${requested.key} returns ${id}, created with ${key}`)
    }
    const kept = new Map(end.tables.idempotency.map(({ key, response }) => [sentKey(key), response.id]))
    for (const [key, id] of ids) {
      if (kept.get(key) !== id)
        problems.push(`${key} created ${id}; the stored response has ${kept.get(key)}`)
    }
    return problems
  }
}

/** A creation without an acknowledgement is stored completely or not at all, and no server exists without a request. */
export const whole: Invariant = {
  name: "a creation is stored completely or not at all",
  problems: ({ end, operations }) => {
    const { tables } = end
    const timelines = timelinesOf(tables)
    const keys = new Map(tables.idempotency.map(({ key, response }) => [response.id, sentKey(key)]))
    const requested = new Set(
      operations.flatMap(({ requested: it }) => (it.kind === "create" ? [it.key] : []))
    )
    const created = tables.journal.flatMap(({ server_id, topic }) =>
      topic === "server:created" ? [server_id] : []
    )
    const mayReturn = undeleted({ operations })
    const twice = created.filter((id, index) => created.indexOf(id) !== index && !mayReturn.has(id))
    return [
      ...twice.map((id) => `${id} was created twice`),
      ...created.filter((id) => !keys.has(id)).map((id) => `${id} was created without a stored response`),
      ...[...keys].flatMap(([id, key]) => [
        ...(timelines.has(id) ? [] : [`a response to ${key} is stored, and ${id} was not created`]),
        ...(requested.has(key) ? [] : [`${key} was not requested, and created ${id}`])
      ]),
      ...tables.servers.flatMap(({ allocations, blueprint_id, id, overrides }) => {
        const operation = overrides?.env?.OPERATION
        const ports = kinds[blueprint_id]?.ports
        return [
          ...(operation === keys.get(id)
            ? []
            : [`${id} of ${keys.get(id)} has the overrides of ${operation}`]),
          ...(portsOf(allocations).length === ports
            ? []
            : [`${id} of ${blueprint_id} has ${portsOf(allocations).length} ports, not ${ports}`])
        ]
      })
    ]
  }
}

/** A creation whose every response says that nothing was changed has changed nothing. */
export const unchanged: Invariant = {
  name: "a refused request changes nothing",
  problems: ({ end, operations }) => {
    const attempts = Map.groupBy(
      operations.filter(({ requested }) => requested.kind === "create"),
      ({ requested }) => (requested.kind === "create" ? requested.key : "")
    )
    return end.tables.idempotency.flatMap(({ key, response }) => {
      const all = attempts.get(sentKey(key)) ?? []
      const isRefused = all.length > 0 && all.every((attempt) => attempt.unchanged === true)
      return isRefused
        ? [`${sentKey(key)} created ${response.id}; operation ${all[0]?.n}: ${all[0]?.detail}`]
        : []
    })
  }
}

/** Every acknowledged server exists, unless it was deleted, or is not saved and has ended. */
export const acknowledged: Invariant = {
  name: "every acknowledged server exists",
  problems: ({ end, operations }) => {
    const kept = new Set(end.tables.servers.map(({ id }) => id))
    const timelines = timelinesOf(end.tables)
    const mayExpire = withExpiry({ operations })
    const deletions = new Set(
      operations.flatMap(({ requested }) => (requested.kind === "delete" ? [requested.server] : []))
    )
    const answers = operations.filter(
      ({ requested, id, status }) => requested.kind === "create" && status === 202 && id
    )
    const byId = new Map(answers.map((operation) => [operation.id ?? "", operation]))
    return [...byId].flatMap(([id, { requested, n }]) => {
      if (kept.has(id)) {
        return end.replicas.flatMap(({ servers }, replica) =>
          servers.some((server) => server.id === id)
            ? []
            : [`${id} (operation ${n}) has a record, and replica ${replica} does not list it`]
        )
      }
      const timeline = timelines.get(id)
      if (timeline === undefined) return [`${id} (operation ${n}) was never created`]
      if (!timeline.isDeleted) return [`${id} (operation ${n}) has no record, and was not deleted`]
      const mayEnd =
        deletions.has(id) || mayExpire.has(id) || (requested.kind === "create" && isEphemeral(requested.body))
      return mayEnd ? [] : [`${id} (operation ${n}) was deleted without a request`]
    })
  }
}

const isUp = (status: unknown) =>
  status === "starting" || status === "running" || status === "stopping" || status === "paused"

/** Every deletion has a reason of the specification, and a deleted server is nowhere to be found. */
export const deletions: Invariant = {
  name: "every deletion has a reason, and a deleted server is gone everywhere",
  problems: ({ nodeActions, end, operations }) => {
    const requested = operations.filter(({ requested: it }) => it.kind === "delete")
    const mayExpire = withExpiry({ operations })
    const wanted = new Set(
      requested.flatMap(({ requested: it }) => (it.kind === "delete" ? [it.server] : []))
    )
    const mayReturn = undeleted({ operations })
    const answered = requested.flatMap(({ requested: it, n, status }) =>
      it.kind === "delete" && status === 200 && !mayReturn.has(it.server) ? [{ id: it.server, n }] : []
    )
    const records = new Set(end.tables.servers.map(({ id }) => id))
    const timelines = timelinesOf(end.tables)
    const lost = givenUp(end.tables)
    const nodes = firstNodes(end.tables)
    const wiped = new Set(nodeActions.flatMap(({ node, server }) => (server === undefined ? [node] : [])))
    const unexplained = [...timelines.values()].filter(
      ({ blueprint_id, entries, id, isDeleted, statuses }) => {
        if (!isDeleted || wanted.has(id) || mayExpire.has(id)) return false
        if (!isEphemeral({ blueprint_id })) return true
        const hasEnded =
          statuses.at(-1)?.payload === "offline" && statuses.some(({ payload }) => isUp(payload))
        const node = nodes.get(id) ?? ""
        const end = entries.at(-1)?.cursor ?? 0
        const isGivenUp = lost.get(node)?.some((cursor) => cursor < end) === true
        return !hasEnded && !isGivenUp && !wiped.has(node)
      }
    )
    return [
      ...answered.flatMap(({ id, n }) => [
        ...(records.has(id) ? [`${id} was deleted (operation ${n}), and has a record`] : []),
        ...(timelines.get(id)?.isDeleted === true
          ? []
          : [`${id} was deleted (operation ${n}) without an event`]),
        ...end.replicas.flatMap(({ servers }, replica) =>
          servers.some((server) => server.id === id)
            ? [`${id} was deleted (operation ${n}), and replica ${replica} lists it`]
            : []
        ),
        ...end.nodes.flatMap(({ id: node, instances }) =>
          instances.some((instance) => instance.id === id)
            ? [`${id} was deleted (operation ${n}), and ${node} has it`]
            : []
        )
      ]),
      ...unexplained.map(
        ({ id, statuses }) =>
          `${id} was deleted without a request: ${statuses.map(({ payload }) => payload).join()}`
      )
    ]
  }
}

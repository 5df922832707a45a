import { isEphemeral, kinds } from "../definitions.ts"
import type { Invariant } from "../History.ts"
import { portsOf, sentKey } from "../Snapshot.ts"
import { firstNodes, givenUp, storiesOf } from "./stories.ts"

/** One idempotency key creates one server, at any replica and for any number of requests. */
export const idempotency: Invariant = {
  name: "one Idempotency-Key makes one server",
  problems: ({ end, operations }) => {
    const problems: Array<string> = []
    const ids = new Map<string, string>()
    const keys = new Map<string, string>()
    for (const { asked, id, n, status } of operations) {
      if (asked.kind !== "create" || status !== 202 || id === undefined) continue
      const before = ids.get(asked.key) ?? id
      ids.set(asked.key, before)
      if (before !== id) problems.push(`operation ${n}: ${asked.key} made ${before}, and now ${id}`)
      const key = keys.get(id) ?? asked.key
      keys.set(id, key)
      if (key !== asked.key) problems.push(`operation ${n}: ${asked.key} answers ${id}, made with ${key}`)
    }
    const kept = new Map(end.tables.idempotency.map(({ key, response }) => [sentKey(key), response.id]))
    for (const [key, id] of ids) {
      if (kept.get(key) !== id)
        problems.push(`${key} made ${id}; the answer that is kept has ${kept.get(key)}`)
    }
    return problems
  }
}

/** A creation without an acknowledgement is stored completely or not at all, and no server exists without a request. */
export const whole: Invariant = {
  name: "a creation is whole or nothing",
  problems: ({ end, operations }) => {
    const { tables } = end
    const stories = storiesOf(tables)
    const keys = new Map(tables.idempotency.map(({ key, response }) => [response.id, sentKey(key)]))
    const asked = new Set(operations.flatMap(({ asked: it }) => (it.kind === "create" ? [it.key] : [])))
    const created = tables.journal.flatMap(({ server_id, topic }) =>
      topic === "server:created" ? [server_id] : []
    )
    const twice = created.filter((id, index) => created.indexOf(id) !== index)
    return [
      ...twice.map((id) => `${id} was created twice`),
      ...created.filter((id) => !keys.has(id)).map((id) => `${id} was created, and no answer is kept`),
      ...[...keys].flatMap(([id, key]) => [
        ...(stories.has(id) ? [] : [`an answer to ${key} is kept, and ${id} was not created`]),
        ...(asked.has(key) ? [] : [`${key} was not asked for, and made ${id}`])
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
  name: "what was refused was not done",
  problems: ({ end, operations }) => {
    const attempts = Map.groupBy(
      operations.filter(({ asked }) => asked.kind === "create"),
      ({ asked }) => (asked.kind === "create" ? asked.key : "")
    )
    return end.tables.idempotency.flatMap(({ key, response }) => {
      const all = attempts.get(sentKey(key)) ?? []
      const isRefused = all.length > 0 && all.every((attempt) => attempt.unchanged === true)
      return isRefused
        ? [`${sentKey(key)} made ${response.id}; operation ${all[0]?.n}: ${all[0]?.detail}`]
        : []
    })
  }
}

/** Every acknowledged server exists, unless it was deleted, or is not saved and has ended. */
export const acknowledged: Invariant = {
  name: "what was acknowledged is present",
  problems: ({ end, operations }) => {
    const kept = new Set(end.tables.servers.map(({ id }) => id))
    const stories = storiesOf(end.tables)
    const deletions = new Set(
      operations.flatMap(({ asked }) => (asked.kind === "delete" ? [asked.server] : []))
    )
    const answers = operations.filter(
      ({ asked, id, status }) => asked.kind === "create" && status === 202 && id
    )
    const byId = new Map(answers.map((operation) => [operation.id ?? "", operation]))
    return [...byId].flatMap(([id, { asked, n }]) => {
      if (kept.has(id)) {
        return end.replicas.flatMap(({ servers }, replica) =>
          servers.some((server) => server.id === id)
            ? []
            : [`${id} (operation ${n}) has a record, and replica ${replica} does not list it`]
        )
      }
      const story = stories.get(id)
      if (story === undefined) return [`${id} (operation ${n}) was never created`]
      if (!story.isDeleted) return [`${id} (operation ${n}) has no record, and was not deleted`]
      const mayEnd = deletions.has(id) || (asked.kind === "create" && isEphemeral(asked.body))
      return mayEnd ? [] : [`${id} (operation ${n}) was deleted, and nobody has asked for it`]
    })
  }
}

const isUp = (status: unknown) =>
  status === "starting" || status === "running" || status === "stopping" || status === "paused"

/** Every deletion has a reason of the specification, and a deleted server is nowhere to be found. */
export const deletions: Invariant = {
  name: "what is deleted was to be deleted, and is gone everywhere",
  problems: ({ deeds, end, operations }) => {
    const asked = operations.filter(({ asked: it }) => it.kind === "delete")
    const wanted = new Set(asked.flatMap(({ asked: it }) => (it.kind === "delete" ? [it.server] : [])))
    const answered = asked.flatMap(({ asked: it, n, status }) =>
      it.kind === "delete" && status === 200 ? [{ id: it.server, n }] : []
    )
    const records = new Set(end.tables.servers.map(({ id }) => id))
    const stories = storiesOf(end.tables)
    const lost = givenUp(end.tables)
    const nodes = firstNodes(end.tables)
    const wiped = new Set(deeds.flatMap(({ node, server }) => (server === undefined ? [node] : [])))
    const unexplained = [...stories.values()].filter(({ blueprint_id, entries, id, isDeleted, statuses }) => {
      if (!isDeleted || wanted.has(id)) return false
      if (!isEphemeral({ blueprint_id })) return true
      const hasEnded = statuses.at(-1)?.payload === "offline" && statuses.some(({ payload }) => isUp(payload))
      const node = nodes.get(id) ?? ""
      const end = entries.at(-1)?.cursor ?? 0
      const isGivenUp = lost.get(node)?.some((cursor) => cursor < end) === true
      return !hasEnded && !isGivenUp && !wiped.has(node)
    })
    return [
      ...answered.flatMap(({ id, n }) => [
        ...(records.has(id) ? [`${id} was deleted (operation ${n}), and has a record`] : []),
        ...(stories.get(id)?.isDeleted === true
          ? []
          : [`${id} was deleted (operation ${n}), and nobody was told`]),
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
          `${id} was deleted, and nobody has asked for it: ${statuses.map(({ payload }) => payload).join()}`
      )
    ]
  }
}

import { changes } from "../../support/SimulatedNode.ts"
import type { History, Invariant } from "../History.ts"
import { definitionOf } from "../Snapshot.ts"
import { firstNodes, isInstall, newest, type Timeline, timelinesOf } from "./timelines.ts"

/** Each node has exactly the servers of its records, in their state and with their definitions. */
export const agreement: Invariant = {
  name: "nodes have the servers of their records",
  problems: ({ end }) => {
    const { nodes, tables } = end
    const records = new Map(tables.servers.map((server) => [server.id, server]))
    return nodes.flatMap(({ id: node, instances }) => {
      const has = new Set(instances.map(({ id }) => id))
      return [
        ...tables.servers
          .filter(({ id, node_id }) => node_id === node && !has.has(id))
          .map(({ id }) => `${node} does not have ${id}`),
        ...instances.flatMap(({ definition, id }) => {
          const record = records.get(id)
          if (record?.node_id !== node) return []
          const expected = definitionOf(record.definition)
          return definition === expected
            ? []
            : [`${id} has ${definition} on ${node}; its record: ${expected}`]
        }),
        ...instances.flatMap(({ id, phase, status }) => {
          const record = records.get(id)
          if (record?.node_id !== node)
            return [`${node} has ${id}, whose record is on ${record?.node_id ?? "none"}`]
          return record.status === status && record.install.phase === phase
            ? []
            : [
                `${id} is ${status}, ${phase} on ${node}; its record: ${record.status}, ${record.install.phase}`
              ]
        })
      ]
    })
  }
}

/** Whether all reports of a server came from one node: it has not migrated, and nothing of it was lost. */
const isPlain = ({ nodeActions, operations }: History) => {
  const wiped = new Set(nodeActions.flatMap(({ node, server }) => (server === undefined ? [node] : [])))
  const again = new Set(
    operations.flatMap(({ requested }) => (requested.kind === "reinstall" ? [requested.server] : []))
  )
  return (timeline: Timeline, node: string) =>
    newest(timeline, "server:placed") === undefined &&
    !timeline.hasReturned &&
    !timeline.entries.some(
      ({ payload, topic }) => topic === "server:install" && isInstall(payload, "pending")
    ) &&
    !wiped.has(node) &&
    !again.has(timeline.id)
}

const brief = ({ entries }: Timeline): ReadonlyArray<string> =>
  entries.flatMap(({ payload, topic }) => {
    if (topic === "status") return payload === "unknown" ? [] : [String(payload)]
    if (topic !== "crash") return []
    return [
      `crash ${payload !== null && typeof payload === "object" && "reason" in payload ? payload.reason : ""}`
    ]
  })

/** The published changes of a server equal the reports of its node, once and in order. */
export const reports: Invariant = {
  name: "published changes equal the reports of the node",
  problems: (history) => {
    const plain = isPlain(history)
    const { nodes, tables } = history.end
    const places = firstNodes(tables)
    const begun = new Set(
      history.operations.flatMap(({ requested, status }) =>
        requested.kind === "delete" && status !== 200 ? [requested.server] : []
      )
    )
    return [...timelinesOf(tables).values()].flatMap((timeline) => {
      const node = nodes.find(({ id }) => id === places.get(timeline.id))
      if (node === undefined || !plain(timeline, node.id)) return []
      const sentReports = changes(["installing", ...(node.sentReports.get(timeline.id) ?? [])])
      const received = changes(brief(timeline))
      // Reports after the deletion are not published.
      const expected = timeline.isDeleted ? sentReports.slice(0, received.length) : sentReports
      // Deleted by its node when the database went away: it is found missing, and its end is published as for any
      // missing server.
      const missingOnNode =
        timeline.isDeleted && begun.has(timeline.id) ? changes([...sentReports, "offline"]) : expected
      return received.join() === expected.join() || received.join() === missingOnNode.join()
        ? []
        : [`${timeline.id}: published ${received.join()}; ${node.id} reported ${sentReports.join()}`]
    })
  }
}

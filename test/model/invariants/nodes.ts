import { changes } from "../../support/SimulatedNode.ts"
import type { History, Invariant } from "../History.ts"
import { firstNodes, isInstall, newest, type Story, storiesOf } from "./stories.ts"

/** Each node has exactly the servers of its records, in their state. */
export const agreement: Invariant = {
  name: "nodes have what the records say",
  problems: ({ end }) => {
    const { nodes, tables } = end
    const records = new Map(tables.servers.map((server) => [server.id, server]))
    return nodes.flatMap(({ id: node, instances }) => {
      const has = new Set(instances.map(({ id }) => id))
      return [
        ...tables.servers
          .filter(({ id, node_id }) => node_id === node && !has.has(id))
          .map(({ id }) => `${node} does not have ${id}`),
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
const isPlain = ({ deeds, operations }: History) => {
  const wiped = new Set(deeds.flatMap(({ node, server }) => (server === undefined ? [node] : [])))
  const again = new Set(operations.flatMap(({ asked }) => (asked.kind === "reinstall" ? [asked.server] : [])))
  return (story: Story, node: string) =>
    newest(story, "server:placed") === undefined &&
    !story.entries.some(
      ({ payload, topic }) => topic === "server:install" && isInstall(payload, "pending")
    ) &&
    !wiped.has(node) &&
    !again.has(story.id)
}

const brief = ({ entries }: Story): ReadonlyArray<string> =>
  entries.flatMap(({ payload, topic }) => {
    if (topic === "status") return payload === "unknown" ? [] : [String(payload)]
    if (topic !== "crash") return []
    return [
      `crash ${payload !== null && typeof payload === "object" && "reason" in payload ? payload.reason : ""}`
    ]
  })

/** The published changes of a server equal the reports of its node, once and in order. */
export const reports: Invariant = {
  name: "what is told is what the node has said",
  problems: (history) => {
    const plain = isPlain(history)
    const { nodes, tables } = history.end
    const places = firstNodes(tables)
    const begun = new Set(
      history.operations.flatMap(({ asked, status }) =>
        asked.kind === "delete" && status !== 200 ? [asked.server] : []
      )
    )
    return [...storiesOf(tables).values()].flatMap((story) => {
      const node = nodes.find(({ id }) => id === places.get(story.id))
      if (node === undefined || !plain(story, node.id)) return []
      const sentReports = changes(["installing", ...(node.sentReports.get(story.id) ?? [])])
      const received = changes(brief(story))
      // Reports after the deletion are not published.
      const expected = story.isDeleted ? sentReports.slice(0, received.length) : sentReports
      // Deleted by its node when the database went away: it is found missing, and its end is published as for any
      // missing server.
      const foundGone =
        story.isDeleted && begun.has(story.id) ? changes([...sentReports, "offline"]) : expected
      return received.join() === expected.join() || received.join() === foundGone.join()
        ? []
        : [`${story.id}: told ${received.join()}; ${node.id} said ${sentReports.join()}`]
    })
  }
}

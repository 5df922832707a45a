import { segment, useGet } from "../api/http.ts"
import { whyNot } from "../api/session.ts"
import type { NodeDetail, SystemInfo } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { ago, bytes, counted } from "../dom/format.ts"
import { Menu, type MenuItem } from "../parts/Menu.tsx"
import { bar, copyable, empty, fact, pageHead, status } from "../parts/parts.tsx"
import { listAddress, setFilter } from "../state/filter.ts"
import { areNodesLoaded, nodes, nodesReadAt } from "../state/nodes.ts"
import { go } from "../state/router.ts"
import { confirmDrain, drain } from "./drain.tsx"
import { bars, portsInUse, stateOf } from "./servers/NodeStrip.tsx"

const itemsOf = (node: NodeDetail): ReadonlyArray<MenuItem> => [
  {
    text: "Show its servers",
    onChoose: () => {
      go(listAddress())
      setFilter({ node: node.id })
    }
  },
  node.drained
    ? {
        text: "End the drain",
        whyNot: whyNot("drain"),
        onChoose: () => void drain(node, { drained: false, move: false })
      }
    : { text: "Drain…", whyNot: whyNot("drain"), onChoose: () => confirmDrain(node) }
]

const Node = ({ held, node }: { readonly node: NodeDetail; readonly held: number }): View => {
  const host = useGet<SystemInfo>(`/api/nodes/${segment(node.id)}/system`, node.connected)
  const [word, colour] = stateOf(node)
  const { capacity, committed, usage } = node
  return (
    <article class="card node" aria-label={`Node ${node.name}`}>
      <div class="across node-title">
        <h2>{node.name}</h2>
        {status(word, colour)}
        <span class="grow" />
        <Menu label={`Actions on ${node.name}`} class="ghost square" items={itemsOf(node)} />
      </div>
      {node.unreachable !== undefined && (
        <p class="problem">{`Its heartbeats arrive, but calls fail: ${node.unreachable}`}</p>
      )}
      {node.not_enforced !== undefined && (
        <p class="note">{`Limits of plain processes are not enforced: ${node.not_enforced.join(", ")}`}</p>
      )}
      {node.move !== undefined && (
        <p class="note">{`${counted(node.move.left, "saved server")} left to move, ${node.move.running_out} end by themselves.`}</p>
      )}
      <div class="meters">
        {bars(node, held)}
        {bar({
          label: "Disk",
          share: capacity.disk_bytes === 0 ? 0 : (usage?.disk_bytes ?? 0) / capacity.disk_bytes,
          mark: capacity.disk_bytes === 0 ? 0 : committed.disk_bytes / capacity.disk_bytes,
          text: usage === null ? "–" : `${bytes(usage.disk_bytes)} of ${bytes(capacity.disk_bytes)}`
        })}
      </div>
      <dl class="facts">
        {fact("Servers", String(node.servers))}
        {fact("Reserved", `${bytes(committed.memory_bytes)} of ${bytes(capacity.memory_bytes)}`)}
        {fact("Location", node.location)}
        {fact("Heartbeat", node.last_seen_at === null ? "never" : ago(node.last_seen_at, nodesReadAt.value))}
        {fact("Id", copyable(node.id))}
        {fact("Address", <code>{node.url}</code>)}
        {fact("Version", node.version)}
        {fact("Host", host?.ok === true ? `${host.body.system.os}, ${host.body.system.architecture}` : "–")}
      </dl>
    </article>
  )
}

export const NodesPage = (): View => {
  const held = portsInUse()
  const all = nodes.value
  return (
    <div>
      {pageHead("Nodes", areNodesLoaded.value ? counted(all.length, "node") : "")}
      {areNodesLoaded.value && all.length === 0 ? (
        empty("node", "No node yet", [
          "A node is a machine that runs servers. ",
          <a href="/docs">The documents</a>,
          " describe how to start one with muster node."
        ])
      ) : (
        <div class="nodes">
          {all.map((node) => (
            <Node key={node.id} node={node} held={held.get(node.id) ?? 0} />
          ))}
        </div>
      )}
    </div>
  )
}

import type { NodeDetail } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { ago, bytes, count, counted } from "../../dom/format.ts"
import { bar } from "../../parts/parts.tsx"
import { filter, setFilter } from "../../state/filter.ts"
import { nodes, nodesReadAt } from "../../state/nodes.ts"
import { rows } from "../../state/servers.ts"

export const stateOf = (node: NodeDetail): readonly [string, string] => {
  if (node.key !== undefined) return [`key ${node.key}`, "unknown"]
  if (node.unreachable !== undefined) return ["unreachable", "unknown"]
  if (!node.connected) return ["away", "away"]
  return node.drained ? ["drained", "stopping"] : ["connected", "running"]
}

export const portsInUse = (): ReadonlyMap<string, number> => {
  const used = new Map<string, number>()
  for (const { allocations, node_id } of rows.values()) {
    const ports = Object.values(allocations.mappings).flat().length
    used.set(node_id, (used.get(node_id) ?? 0) + ports)
  }
  return used
}

const share = (part: number, whole: number): number => (whole === 0 ? 0 : part / whole)

export const bars = (
  { capacity, committed, ports_free, usage }: NodeDetail,
  held: number
): ReadonlyArray<View> => [
  bar({
    label: "Memory",
    share: share(usage?.memory_bytes ?? 0, capacity.memory_bytes),
    mark: share(committed.memory_bytes, capacity.memory_bytes),
    text: usage === null ? "–" : `${bytes(usage.memory_bytes)} of ${bytes(capacity.memory_bytes)}`
  }),
  bar({
    label: "CPU",
    share: share(usage?.load ?? 0, capacity.cpu_threads),
    text: usage === null ? "–" : `load ${usage.load.toFixed(1)} of ${counted(capacity.cpu_threads, "thread")}`
  }),
  bar({
    label: "Ports",
    share: share(held, held + ports_free),
    // A server may hold ports outside the range that its node has now.
    text: `${count(held)} used, ${count(ports_free)} free`
  })
]

const Node = ({ held, node }: { readonly node: NodeDetail; readonly held: number }): View => {
  const [word, colour] = stateOf(node)
  const isChosen = filter.value.node === node.id
  const seen = node.last_seen_at
  return (
    <button
      type="button"
      class={classes("node-card", `is-${colour}`, isChosen && "is-chosen")}
      aria-pressed={isChosen}
      title={node.unreachable ?? "Show only the servers of this node"}
      onClick={() => setFilter({ node: isChosen ? "" : node.id })}
    >
      <div class="across node-head">
        <span class="dot" aria-hidden="true" />
        <span class="node-name">{node.name}</span>
        <span class="node-location">{node.location}</span>
        <span class="grow" />
        <span class="node-state">
          {word === "away" && seen !== null
            ? `away, ${ago(seen, nodesReadAt.value)}`
            : word === "connected"
              ? counted(node.servers, "server")
              : word}
        </span>
      </div>
      {bars(node, held)}
    </button>
  )
}

/** The nodes as cards; a click shows the servers of one. */
export const NodeStrip = (): View | null => {
  const all = nodes.value
  if (all.length === 0) return null
  const held = portsInUse()
  return (
    <section class="node-strip" aria-label="Nodes">
      {all.map((node) => (
        <Node key={node.id} node={node} held={held.get(node.id) ?? 0} />
      ))}
    </section>
  )
}

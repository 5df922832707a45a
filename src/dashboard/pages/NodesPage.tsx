import { request, segment, useLast, useReply } from "../api/http.ts"
import { whyNot } from "../api/session.ts"
import type { DrainPlan, NodeDetail, SystemInfo } from "../api/types.ts"
import { classes, type View } from "../dom/el.ts"
import { ago, bytes, count, counted } from "../dom/format.ts"
import { withActions } from "../dom/routeActions.ts"
import { closeDialog, Dialog, openDialog } from "../parts/Dialog.tsx"
import { bodyOf, field, useForm } from "../parts/form.tsx"
import { Menu, type MenuItem } from "../parts/Menu.tsx"
import { action, bar, copyable, drawReply, empty, fact, pageHead, status } from "../parts/parts.tsx"
import { filter, listAddress, setFilter } from "../state/filter.ts"
import { areNodesLoaded, nodes, nodesReadAt, readNodes } from "../state/nodes.ts"
import { tell } from "../state/notices.ts"
import { go } from "../state/router.ts"
import { rows } from "../state/servers.ts"

const drainedPath = ({ id }: NodeDetail): string => `/api/nodes/${segment(id)}/drained`

const drain = async (
  node: NodeDetail,
  body: { readonly drained: boolean; readonly [setting: string]: unknown }
) => {
  const done = body.drained ? `${node.name} is drained` : `${node.name} takes servers again`
  await tell(request("PATCH", drainedPath(node), { body }), done, `${node.name} was not changed`)
  void readNodes()
}

const Plan = ({ plan }: { readonly plan: DrainPlan }): View => {
  const to = new Map<string, number>()
  for (const { to_name } of plan.migrations) to.set(to_name, (to.get(to_name) ?? 0) + 1)
  const isWhole = plan.migrations.length === plan.migrations_total
  return (
    <ul class="drain-plan">
      <li>
        {`${counted(plan.migrations_total, "saved server")} would move`}
        {isWhole && to.size > 0 && `: ${[...to].map(([name, number]) => `${number} to ${name}`).join(", ")}`}.
      </li>
      {plan.blocked.map(({ reason, total }) => (
        <li
          key={reason}
          class="problem"
        >{`${counted(total, "server")} would stay: ${withActions(reason)}`}</li>
      ))}
      {plan.running_out > 0 && (
        <li>{`${counted(plan.running_out, "server")} that are not saved stay until they stop.`}</li>
      )}
    </ul>
  )
}

const notice = [
  field(
    "text",
    "notify",
    "Line before a move",
    "For the console of each running server: say Restart in 10 s"
  ),
  field("number", "notify_seconds", "Seconds after the line", "Until the stop. Empty: 10.")
]

const ConfirmDrain = ({ node }: { readonly node: NodeDetail }): View => {
  const plan = useReply(
    () =>
      request<DrainPlan>("PATCH", `${drainedPath(node)}?dry_run=true`, {
        body: { drained: true, move: true }
      }),
    [node.id]
  )
  const { inputs, texts } = useForm()
  const start = (move: boolean) => () => {
    closeDialog()
    void drain(node, { drained: true, ...(move && { move, ...bodyOf(notice, texts) }) })
  }
  const moves = plan?.ok !== true || plan.body.migrations_total > 0
  return (
    <Dialog title={`Drain ${node.name}?`}>
      <p>A drained node gets no new servers. Servers that run on it continue until they stop.</p>
      <p>
        {"With "}
        <strong>Drain and move</strong>, saved servers are stopped, copied with their files to other nodes,
        two at a time, and started there.
      </p>
      {drawReply(
        plan,
        "Asking where its servers would go",
        (body) => (
          <Plan plan={body} />
        ),
        true
      )}
      {moves && inputs(notice)}
      <div class="dialog-actions">
        {action({ text: "Cancel", onClick: closeDialog })}
        {action({ text: "Drain", class: moves ? "" : "primary", onClick: start(false) })}
        {action({ text: "Drain and move", class: moves ? "primary" : "", onClick: start(true) })}
      </div>
    </Dialog>
  )
}

const confirmDrain = (node: NodeDetail): void => openDialog(<ConfirmDrain node={node} />)

const stateOf = (node: NodeDetail): readonly [string, string] => {
  if (node.key !== undefined) return [`key ${node.key}`, "unknown"]
  if (node.unreachable !== undefined) return ["unreachable", "unknown"]
  if (!node.connected) return ["away", "away"]
  return node.drained ? ["drained", "stopping"] : ["connected", "running"]
}

const portsInUse = (): ReadonlyMap<string, number> => {
  const used = new Map<string, number>()
  for (const { allocations, node_id } of rows.values()) {
    const ports = Object.values(allocations.mappings).flat().length
    used.set(node_id, (used.get(node_id) ?? 0) + ports)
  }
  return used
}

const share = (part: number, whole: number): number => (whole === 0 ? 0 : part / whole)

const bars = ({ capacity, committed, ports_free, usage }: NodeDetail, held: number): ReadonlyArray<View> => [
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

const NodeButton = ({ held, node }: { readonly node: NodeDetail; readonly held: number }): View => {
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
        <NodeButton key={node.id} node={node} held={held.get(node.id) ?? 0} />
      ))}
    </section>
  )
}

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
  const host = useLast<SystemInfo>(`/api/nodes/${segment(node.id)}/system`, node.connected)
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
          share: share(usage?.disk_bytes ?? 0, capacity.disk_bytes),
          mark: share(committed.disk_bytes, capacity.disk_bytes),
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

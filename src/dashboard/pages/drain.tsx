import { request, segment, useReply } from "../api/http.ts"
import type { DrainPlan, NodeDetail } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { counted } from "../dom/format.ts"
import { withActions } from "../dom/routeActions.ts"
import { closeDialog, Dialog, openDialog } from "../parts/Dialog.tsx"
import { bodyOf, field, useForm } from "../parts/form.tsx"
import { action, drawReply } from "../parts/parts.tsx"
import { readNodes } from "../state/nodes.ts"
import { tell } from "../state/notices.ts"

const drainedPath = ({ id }: NodeDetail): string => `/api/nodes/${segment(id)}/drained`

export const drain = async (
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

export const confirmDrain = (node: NodeDetail): void => openDialog(<ConfirmDrain node={node} />)

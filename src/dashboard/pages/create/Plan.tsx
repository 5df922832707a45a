import type { Reply } from "../../api/http.ts"
import type { CreationPlan } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { bytes, counted, mebibytes, percent } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"

import { fact } from "../../parts/parts.tsx"

const runTexts = {
  unless_stopped: "starts if it was up",
  always: "starts always",
  manual: "stays offline"
} as const

const Definition = ({ definition }: CreationPlan): View => (
  <dl class="facts">
    {fact("Software", `${definition.software} ${definition.version}`)}
    {definition.image !== "" && fact("Image", definition.image)}
    {fact("Runs as", definition.runtimes.join(" or "))}
    {fact("Memory", mebibytes(definition.limits.memory_limit ?? 0))}
    {fact("Ports", String(definition.ports))}
    {fact("When it stops", definition.save ? "is kept" : "is deleted")}
    {fact(
      "After a crash",
      !definition.save ? "is deleted" : definition.restart.on_crash ? "starts again" : "stays offline"
    )}
    {definition.save && fact("After a restart of its node", runTexts[definition.run ?? "unless_stopped"])}
  </dl>
)

const Candidates = ({ candidates, node_id }: CreationPlan): View => (
  <ul class="stack candidates" tabIndex={0} aria-label="Nodes">
    {candidates.map((node) => (
      <li
        key={node.node_id}
        class={classes("candidate", node.node_id === node_id && "is-chosen", !node.fits && "is-unfit")}
      >
        <div class="across candidate-head">
          {icon(node.fits ? "check" : "close")}
          <span class="node-name">{node.node_name}</span>
          {node.node_id === node_id && <span class="tag">chosen</span>}
          <span class="grow" />
          <span class="muted small">{`${percent(node.share)} reserved`}</span>
        </div>
        <p class="muted small">
          {node.fits
            ? `${bytes(node.memory_free_bytes)} of memory, ${bytes(node.disk_free_bytes)} of disk and ${counted(node.ports_free, "port")} free`
            : (node.reason ?? "does not fit")}
        </p>
      </li>
    ))}
  </ul>
)

export const Plan = (props: {
  readonly isChosen: boolean
  readonly plan: Reply<CreationPlan> | undefined
}): View => {
  const { isChosen, plan } = props
  return (
    <aside class="stack card panel plan" aria-live="polite" aria-label="Placement and definition">
      <h2>What happens</h2>
      {!isChosen ? (
        <p class="muted">
          Choose a blueprint. The service then says which node would run the server, and why no other.
        </p>
      ) : plan === undefined ? (
        <p class="muted">Asking the service</p>
      ) : !plan.ok ? (
        <p class="problem">{`${plan.detail} ${plan.hint}`}</p>
      ) : (
        [
          plan.body.node_id === null && <p class="problem">No node fits.</p>,
          plan.body.warnings.map((warning) => (
            <p key={warning} class="note">
              {warning}
            </p>
          )),
          <h3>Nodes</h3>,
          Candidates(plan.body),
          <h3>Definition</h3>,
          Definition(plan.body)
        ]
      )}
    </aside>
  )
}

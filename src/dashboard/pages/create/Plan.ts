import type { Reply } from "../../api/http.ts"
import type { CreationPlan } from "../../api/types.ts"
import { aside, classes, dd, div, dl, dt, h2, h3, li, p, span, ul, type View } from "../../dom/el.ts"
import { bytes, counted, mebibytes, percent } from "../../dom/format.ts"
import { icon } from "../../dom/icons.ts"

const fact = (name: string, value: string): View => div({ key: name }, dt({}, name), dd({}, value))

const runTexts = {
  unless_stopped: "starts if it was up",
  always: "starts always",
  manual: "stays offline"
} as const

const Definition = ({ definition }: CreationPlan): View =>
  dl(
    { class: "facts" },
    fact("Software", `${definition.software} ${definition.version}`),
    definition.image !== "" && fact("Image", definition.image),
    fact("Runs as", definition.runtimes.join(" or ")),
    fact("Memory", mebibytes(definition.limits.memory_limit ?? 0)),
    fact("Ports", String(definition.ports)),
    fact("When it stops", definition.save ? "is kept" : "is deleted"),
    fact(
      "After a crash",
      !definition.save ? "is deleted" : definition.restart.on_crash ? "starts again" : "stays offline"
    ),
    definition.save && fact("After a restart of its node", runTexts[definition.run ?? "unless_stopped"])
  )

const Candidates = ({ candidates, node_id }: CreationPlan): View =>
  ul(
    { class: "candidates", tabIndex: 0, "aria-label": "Nodes" },
    candidates.map((node) =>
      li(
        {
          key: node.node_id,
          class: classes("candidate", node.node_id === node_id && "is-chosen", !node.fits && "is-unfit")
        },
        div(
          { class: "candidate-head" },
          icon(node.fits ? "check" : "close"),
          span({ class: "node-name" }, node.node_name),
          node.node_id === node_id && span({ class: "tag" }, "chosen"),
          span({ class: "grow" }),
          span({ class: "muted small" }, `${percent(node.share)} reserved`)
        ),
        p(
          { class: "muted small" },
          node.fits
            ? `${bytes(node.memory_free_bytes)} of memory, ${bytes(node.disk_free_bytes)} of disk and ${counted(node.ports_free, "port")} free`
            : (node.reason ?? "does not fit")
        )
      )
    )
  )

/** The dry run of the form: the chosen node, and the reasons against the others. */
export const Plan = (props: {
  readonly isChosen: boolean
  readonly plan: Reply<CreationPlan> | undefined
}): View => {
  const { isChosen, plan } = props
  return aside(
    { class: "card panel plan", "aria-live": "polite", "aria-label": "Placement and definition" },
    h2({}, "What happens"),
    !isChosen
      ? p(
          { class: "muted" },
          "Choose a blueprint. The service then says which node would run the server, and why no other."
        )
      : plan === undefined
        ? p({ class: "muted" }, "Asking the service")
        : !plan.ok
          ? p({ class: "problem" }, `${plan.detail} ${plan.hint}`)
          : [
              plan.body.node_id === null && p({ class: "problem" }, "No node fits."),
              plan.body.warnings.map((warning) => p({ class: "note", key: warning }, warning)),
              h3({}, "Nodes"),
              Candidates(plan.body),
              h3({}, "Definition"),
              Definition(plan.body)
            ]
  )
}

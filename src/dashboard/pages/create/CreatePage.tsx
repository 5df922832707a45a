import { useMemo, useState } from "preact/hooks"
import { type Reply, request, useReply } from "../../api/http.ts"
import { caller, useBlueprints, whyNot } from "../../api/session.ts"
import type { Blueprint, CreationPlan, NodeDetail, Server } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { bytes, counted, mebibytes, percent } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { bodyOf, checkField, type Field, field, pairsText, problemIn, useForm } from "../../parts/form.tsx"
import { action, backToList, drawReply, empty, fact } from "../../parts/parts.tsx"
import { listAddress } from "../../state/filter.ts"
import { nodes } from "../../state/nodes.ts"
import { done } from "../../state/notices.ts"
import { addressOf, go } from "../../state/router.ts"
import { rowOf } from "../../state/rows.ts"
import { changed, put } from "../../state/servers.ts"
import { configs, expiry, labels, save, version } from "../server/fields.ts"

/** The fields that most new servers need; the others are its blueprint, and whether it starts. */
const firstFields: ReadonlyArray<Field> = [
  field("text", "name", "Name", "Optional; need not be unique."),
  field(
    "number",
    "overrides.limits.memory_limit",
    "Memory, MiB",
    "Leave it empty for the value of the blueprint."
  ),
  field("number", "overrides.limits.disk_space", "Disk, MB", "Leave it empty for the value of the blueprint.")
]

const furtherFields = (nodes: ReadonlyArray<NodeDetail>): ReadonlyArray<Field> => [
  field("choice", "node_id", "Node", "The load balancer chooses unless you do.", {
    choices: [["", "Chosen by the load balancer"], ...nodes.map(({ id, name }) => [id, name] as const)]
  }),
  version,
  save("Keep it when it stops"),
  expiry("Empty: never."),
  labels,
  field("pairs", "overrides.env", "Environment variables", "One NAME=value a line."),
  configs
]

/** Milliseconds after the last key before the service is asked what it would do. */
const SETTLE = 250

/** 128 random bits; `randomUUID` exists on pages over HTTPS only. */
const makeKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-")

/** Returns why the service would not create the server, if it has said so. */
const planProblem = (plan: Reply<CreationPlan> | undefined): string | undefined => {
  if (plan === undefined) return undefined
  if (!plan.ok) return plan.detail
  if (plan.body.node_id !== null) return undefined
  const reason = plan.body.candidates.find((node) => !node.fits)?.reason
  return reason === undefined ? "No node fits." : `No node fits: ${reason}`
}

const blueprintCard = (blueprint: Blueprint, isChosen: boolean, choose: () => void): View => (
  <label key={blueprint.metadata.id} class={classes("blueprint", isChosen && "is-chosen")}>
    <input type="radio" name="blueprint" checked={isChosen} onChange={choose} />
    <span class="blueprint-name">{blueprint.metadata.name}</span>
    {blueprint.metadata.name !== blueprint.metadata.id && (
      <code class="server-id">{blueprint.metadata.id}</code>
    )}
    <span class="muted small">{`${blueprint.server.software} ${blueprint.server.version} · ${mebibytes(blueprint.server.limits.memory_limit ?? 0)}${blueprint.save ? " · saved" : ""}`}</span>
  </label>
)

const CreationForm = (props: {
  readonly blueprints: ReadonlyArray<Blueprint>
  readonly further: ReadonlyArray<Field>
  readonly form: ReturnType<typeof useForm>
  readonly body: Readonly<Record<string, unknown>>
  readonly plan: Reply<CreationPlan> | undefined
}): View => {
  const { blueprints, body, further, plan } = props
  const { inputs, set, texts } = props.form
  const { blueprint_id = "", name = "", start = "true" } = texts
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  // A repetition after a lost response creates no second server.
  const idempotencyKey = useMemo(makeKey, [texts])
  const create = async () => {
    setBusy(true)
    setProblem("")
    const reply = await request<Server>("POST", "/api/servers", {
      body,
      headers: { "idempotency-key": idempotencyKey }
    })
    setBusy(false)
    if (!reply.ok) return setProblem(`${reply.detail} ${reply.hint}`)
    put(rowOf({ ...reply.body, status: "installing", name: name === "" ? null : name }))
    changed()
    done(`Created ${name === "" ? reply.body.id : name}`)
    go(addressOf.server(reply.body.id))
  }
  const cannot =
    whyNot("create") ??
    problemIn([...firstFields, ...further], texts) ??
    (blueprint_id === "" ? "Choose a blueprint first." : planProblem(plan))
  return (
    <form
      class="stack card panel"
      onSubmit={(event: Event) => {
        event.preventDefault()
        if (cannot === undefined && !isBusy) void create()
      }}
    >
      <fieldset class="blueprints">
        <legend>Blueprint</legend>
        {blueprints.map((blueprint) =>
          blueprintCard(blueprint, blueprint_id === blueprint.metadata.id, () =>
            set("blueprint_id", blueprint.metadata.id)
          )
        )}
      </fieldset>
      {inputs(firstFields)}
      <details>
        <summary>More settings</summary>
        {inputs(further)}
      </details>
      {checkField("Start it once it is installed", start === "true", () =>
        set("start", String(start !== "true"))
      )}
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="across form-actions">
        <span class="muted grow" role="status">
          {cannot}
        </span>
        {action({ text: "Cancel", class: "ghost", onClick: () => go(listAddress()) })}
        {action({
          text: isBusy ? "Creating…" : "Create the server",
          class: "primary",
          whyNot: cannot,
          isBusy
        })}
      </div>
    </form>
  )
}

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
    {definition.limits.disk_space !== undefined && fact("Disk", `${definition.limits.disk_space} MB`)}
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

const Plan = (props: {
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

export const CreatePage = (): View => {
  const blueprints = useBlueprints()
  const form = useForm(() => ({ labels: pairsText(caller.value?.labels) }))
  const further = furtherFields(nodes.value)
  const { blueprint_id = "", start = "true" } = form.texts
  const body = { blueprint_id, start: start === "true", ...bodyOf([...firstFields, ...further], form.texts) }
  const lacks = whyNot("create")
  const [isUnfit, setUnfit] = useState(false)
  const plan = useReply<CreationPlan>(
    blueprint_id === "" || lacks !== undefined
      ? undefined
      : (signal) => request("POST", "/api/servers?dry_run=true", { body, signal }),
    // A node that was full may have room when the nodes are read again.
    [JSON.stringify(body), isUnfit ? nodes.value : undefined],
    { settle: SETTLE }
  )
  if (plan?.ok === true && isUnfit !== (plan.body.node_id === null)) setUnfit(!isUnfit)
  return (
    <div>
      <div class="across page-head server-head">
        {backToList()}
        <h1>New server</h1>
      </div>
      {lacks !== undefined && <p class="note">{lacks}</p>}
      {drawReply(blueprints, "Loading the blueprints", (all) =>
        all.length === 0 ? (
          empty(
            "servers",
            "No blueprint yet",
            "A blueprint is a YAML file in the folder of blueprints. Write one, reload, and come back."
          )
        ) : (
          <div class="create-columns">
            <CreationForm blueprints={all} further={further} form={form} body={body} plan={plan} />
            <Plan isChosen={blueprint_id !== ""} plan={plan} />
          </div>
        )
      )}
    </div>
  )
}

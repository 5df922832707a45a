import { useEffect, useMemo, useState } from "preact/hooks"
import { type Reply, request } from "../../api/http.ts"
import { caller, useBlueprints, whyNot } from "../../api/session.ts"
import type { Blueprint, CreationPlan, Server } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { mebibytes } from "../../dom/format.ts"
import { checkField, type FieldKind, numberIn, useForm } from "../../parts/fieldInput.tsx"
import { action, backToList, empty } from "../../parts/parts.tsx"
import { listAddress } from "../../state/filter.ts"
import { nodes } from "../../state/nodes.ts"
import { done } from "../../state/notices.ts"
import { addressOf, go } from "../../state/router.ts"
import { rowOf } from "../../state/rows.ts"
import { changed, put } from "../../state/servers.ts"
import { CONFIGS_HINT, configsOf, pairsOf, pairsText, problemOf, saveChoices } from "../server/fields.ts"
import { Plan } from "./Plan.tsx"

interface Form {
  readonly blueprint: string
  readonly name: string
  readonly node: string
  readonly memory: string
  readonly version: string
  readonly save: string
  readonly expires: string
  readonly labels: string
  readonly env: string
  readonly configs: string
  readonly start: boolean
}

const emptyForm: Form = {
  blueprint: "",
  name: "",
  node: "",
  memory: "",
  version: "",
  save: "",
  expires: "",
  labels: "",
  env: "",
  configs: "",
  start: true
}

const given = <A,>(text: string, value: (text: string) => A, key: string): Record<string, A> =>
  text.trim() === "" ? {} : { [key]: value(text.trim()) }

const record = (text: string) => Object.fromEntries(pairsOf(text))

const bodyOf = (form: Form): Record<string, unknown> => {
  const overrides = {
    ...given(form.memory, (text) => ({ memory_limit: numberIn(text) }), "limits"),
    ...given(form.version, String, "version"),
    ...given(form.save, (text) => text === "true", "save"),
    ...given(form.env, record, "env"),
    ...given(form.configs, configsOf, "configs")
  }
  return {
    blueprint_id: form.blueprint,
    start: form.start,
    ...given(form.name, String, "name"),
    ...given(form.node, String, "node_id"),
    ...given(form.labels, record, "labels"),
    ...given(form.expires, (text) => numberIn(text, 3600), "expires_in"),
    ...(Object.keys(overrides).length > 0 && { overrides })
  }
}

/** Milliseconds after the last key before the service is asked what it would do. */
const SETTLE = 250

/** 128 random bits; `randomUUID` exists on pages over HTTPS only. */
const makeKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-")

const isUnfit = (plan: Reply<CreationPlan> | undefined): boolean =>
  plan?.ok === true && plan.body.node_id === null

const usePlan = (values: Form): Reply<CreationPlan> | undefined => {
  const [plan, setPlan] = useState<Reply<CreationPlan> | undefined>(undefined)
  const body = JSON.stringify(bodyOf(values))
  useEffect(() => {
    if (values.blueprint === "" || whyNot("create") !== undefined) return
    const stop = new AbortController()
    const timer = setTimeout(() => {
      void request<CreationPlan>("POST", "/api/servers?dry_run=true", {
        body: JSON.parse(body),
        signal: stop.signal
      }).then((reply) => {
        if (!stop.signal.aborted) setPlan(reply)
      })
    }, SETTLE)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
    // A node that was full may have room when the nodes are read again.
  }, [body, isUnfit(plan) ? nodes.value : undefined])
  return plan
}

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

/** The form of a new server; `cannot`: why it cannot be created now. */
const CreationForm = (props: {
  readonly blueprints: ReadonlyArray<Blueprint>
  readonly form: ReturnType<typeof useForm<Form>>
  readonly plan: Reply<CreationPlan> | undefined
}): View => {
  const { blueprints, plan } = props
  const { field, set, values } = props.form
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  // A repetition after a lost response creates no second server.
  const idempotencyKey = useMemo(makeKey, [values])
  const create = async () => {
    setBusy(true)
    setProblem("")
    const reply = await request<Server>("POST", "/api/servers", {
      body: bodyOf(values),
      headers: { "idempotency-key": idempotencyKey }
    })
    setBusy(false)
    if (!reply.ok) return setProblem(`${reply.detail} ${reply.hint}`)
    put(rowOf({ ...reply.body, status: "installing", name: values.name === "" ? null : values.name }))
    changed()
    done(`Created ${values.name === "" ? reply.body.id : values.name}`)
    go(addressOf.server(reply.body.id))
  }
  const checked = (name: "memory" | "expires" | "configs", label: string, hint: string, kind: FieldKind) =>
    field(name, label, hint, { kind, problem: problemOf(kind, values[name]) })
  const cannot =
    whyNot("create") ??
    problemOf("configs", values.configs) ??
    problemOf("number", values.memory) ??
    problemOf("number", values.expires) ??
    (values.blueprint === "" ? "Choose a blueprint first." : planProblem(plan))
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
          blueprintCard(blueprint, values.blueprint === blueprint.metadata.id, () =>
            set({ blueprint: blueprint.metadata.id })
          )
        )}
      </fieldset>
      <div class="fields">
        {field("name", "Name", "Optional; need not be unique.")}
        {field("node", "Node", "The load balancer chooses unless you do.", {
          kind: "choice",
          choices: [
            ["", "Chosen by the load balancer"],
            ...nodes.value.map(({ id, name }) => [id, name] as const)
          ]
        })}
        {checked("memory", "Memory, MiB", "Empty: that of the blueprint.", "number")}
        {field("version", "Version", "Empty: that of the blueprint.")}
        {field("save", "Keep it when it stops", "", { kind: "choice", choices: saveChoices })}
        {checked("expires", "Delete in, hours", "Empty: never.", "number")}
        {field("labels", "Labels", "One key=value a line.", { kind: "pairs" })}
        {field("env", "Environment variables", "One NAME=value a line.", { kind: "pairs" })}
        {checked("configs", "Config patches", CONFIGS_HINT, "configs")}
      </div>
      {checkField("Start it once it is installed", values.start, () => set({ start: !values.start }))}
      <p class="problem" role="alert">
        {problem}
      </p>
      {isUnfit(plan) && <p class="problem">{planProblem(plan)}</p>}
      <div class="across form-actions">
        <div class="grow" />
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

export const CreatePage = (): View => {
  const blueprints = useBlueprints()
  const form = useForm<Form>(() => ({ ...emptyForm, labels: pairsText(caller.value?.labels) }))
  const plan = usePlan(form.values)
  const lacks = whyNot("create")
  return (
    <div>
      <div class="across page-head server-head">
        {backToList()}
        <h1>New server</h1>
      </div>
      {lacks !== undefined && <p class="note">{lacks}</p>}
      {blueprints?.ok === false && <p class="problem">{blueprints.detail}</p>}
      {blueprints?.ok === true && blueprints.body.length === 0 ? (
        empty(
          "servers",
          "No blueprint yet",
          "A blueprint is a YAML file in the folder of blueprints. Write one, reload, and come back."
        )
      ) : (
        <div class="create-columns">
          <CreationForm blueprints={blueprints?.ok === true ? blueprints.body : []} form={form} plan={plan} />
          <Plan isChosen={form.values.blueprint !== ""} plan={plan} />
        </div>
      )}
    </div>
  )
}

import { useEffect, useMemo, useState } from "preact/hooks"
import { get, type Reply, request } from "../../api/http.ts"
import { caller, whyNot } from "../../api/session.ts"
import type { Blueprint, CreationPlan, Server } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { mebibytes } from "../../dom/format.ts"
import { FieldInput, type FieldKind } from "../../parts/fieldInput.tsx"
import { action, empty } from "../../parts/parts.tsx"
import { listAddress } from "../../state/filter.ts"
import { nodes } from "../../state/nodes.ts"
import { done } from "../../state/notices.ts"
import { addressOf, follow, go } from "../../state/router.ts"
import { rowOf } from "../../state/rows.ts"
import { changed, put } from "../../state/servers.ts"
import { CONFIGS_HINT, pairsText, problemOf } from "../server/fields.ts"
import { bodyOf, emptyForm, type Form } from "./form.ts"
import { Plan } from "./Plan.tsx"

/** Milliseconds after the last key before the service is asked what it would do. */
const SETTLE = 250

/** 128 random bits; `randomUUID` exists on pages over HTTPS only. */
const makeKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-")

/** Whether the key may create servers of a blueprint. */
const isAllowed = ({ metadata }: Blueprint): boolean =>
  caller.value?.blueprints === undefined || caller.value.blueprints.includes(metadata.id)

const useBlueprints = (): Reply<ReadonlyArray<Blueprint>> | undefined => {
  const [all, setAll] = useState<Reply<ReadonlyArray<Blueprint>> | undefined>(undefined)
  useEffect(() => {
    const stop = new AbortController()
    void get<{ readonly data: ReadonlyArray<Blueprint> }>("/api/blueprints?limit=1000", stop.signal).then(
      (reply) => {
        if (!stop.signal.aborted)
          setAll(reply.ok ? { ...reply, body: reply.body.data.filter(isAllowed) } : reply)
      }
    )
    return () => stop.abort()
  }, [])
  return all
}

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

/** Why the service would not create the server; undefined: it would, or has not said so yet. */
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

/** Creates a server from a blueprint; the service explains meanwhile what it would do. */
export const CreatePage = (): View => {
  const blueprints = useBlueprints()
  const [values, setValues] = useState<Form>(() => ({
    ...emptyForm,
    labels: pairsText(caller.value?.labels)
  }))
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  const plan = usePlan(values)
  // A repetition after a lost response creates no second server.
  const idempotencyKey = useMemo(makeKey, [values])
  const set = (change: Partial<Form>) => setValues((before) => ({ ...before, ...change }))
  const lacks = whyNot("create")
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
  const text = (
    name: keyof Form,
    title: string,
    more: { readonly hint?: string; readonly kind?: FieldKind; readonly placeholder?: string } = {}
  ) => (
    <FieldInput
      label={title}
      kind="text"
      value={String(values[name])}
      problem={problemOf(more.kind ?? "text", String(values[name]))}
      onChange={(value: string) => set({ [name]: value })}
      {...more}
    />
  )
  const cannot =
    lacks ??
    problemOf("configs", values.configs) ??
    problemOf("number", values.memory) ??
    problemOf("number", values.expires) ??
    (values.blueprint === "" ? "Choose a blueprint first." : planProblem(plan))
  return (
    <div>
      <div class="across page-head server-head">
        <a class="back" href={listAddress()} onClick={follow}>
          Servers
        </a>
        <span class="crumb" aria-hidden="true">
          /
        </span>
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
          <form
            class="stack card panel"
            onSubmit={(event: Event) => {
              event.preventDefault()
              if (cannot === undefined && !isBusy) void create()
            }}
          >
            <fieldset class="blueprints">
              <legend>Blueprint</legend>
              {blueprints?.ok === true &&
                blueprints.body.map((blueprint) =>
                  blueprintCard(blueprint, values.blueprint === blueprint.metadata.id, () =>
                    set({ blueprint: blueprint.metadata.id })
                  )
                )}
            </fieldset>
            <div class="fields">
              {text("name", "Name", { hint: "Optional; need not be unique." })}
              <FieldInput
                label="Node"
                kind="choice"
                hint="The load balancer chooses unless you do."
                value={values.node}
                choices={[
                  ["", "Chosen by the load balancer"],
                  ...nodes.value.map(({ id, name }) => [id, name] as const)
                ]}
                onChange={(node: string) => set({ node })}
              />
              {text("memory", "Memory, MiB", { kind: "number", hint: "Empty: that of the blueprint." })}
              {text("version", "Version", { hint: "Empty: that of the blueprint." })}
              <FieldInput
                label="Keep it when it stops"
                kind="choice"
                value={values.save}
                choices={[
                  ["", "As the blueprint says"],
                  ["true", "Yes, it is saved"],
                  ["false", "No, it is deleted"]
                ]}
                onChange={(save: string) => set({ save })}
              />
              {text("expires", "Delete in, hours", { kind: "number", hint: "Empty: never." })}
              {text("labels", "Labels", { kind: "pairs", hint: "One key=value a line." })}
              {text("env", "Environment variables", { kind: "pairs", hint: "One NAME=value a line." })}
              {text("configs", "Config patches", { kind: "configs", hint: CONFIGS_HINT })}
            </div>
            <label class="across check-field">
              <input type="checkbox" checked={values.start} onChange={() => set({ start: !values.start })} />
              <span>Start it once it is installed</span>
            </label>
            <p class="problem" role="alert">
              {problem}
            </p>
            {isUnfit(plan) && <p class="problem">{planProblem(plan)}</p>}
            <div class="across form-actions">
              <div class="grow" />
              {action({ text: "Cancel", class: "ghost", onClick: () => go(listAddress()) })}
              <button
                type="submit"
                class={classes("primary", isBusy && "is-busy")}
                aria-disabled={cannot !== undefined || isBusy}
                title={cannot}
              >
                {isBusy ? "Creating…" : "Create the server"}
              </button>
            </div>
          </form>
          <Plan isChosen={values.blueprint !== ""} plan={plan} />
        </div>
      )}
    </div>
  )
}

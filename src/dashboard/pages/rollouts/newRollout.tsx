import { useEffect, useState } from "preact/hooks"
import { type Reply, request } from "../../api/http.ts"
import { useBlueprints, whyNot } from "../../api/session.ts"
import type { Rollout, RolloutPlan } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { FieldInput, useForm } from "../../parts/fieldInput.tsx"
import { drawReply } from "../../parts/parts.tsx"
import { done } from "../../state/notices.ts"
import { addressOf, go } from "../../state/router.ts"
import { clearSelection } from "../../state/selection.ts"
import { Plan } from "./Plan.tsx"
import { bodyOf, emptyForm, failures, restarts } from "./settings.ts"

type Selector = { readonly ids: ReadonlyArray<string> } | { readonly blueprint_id: string }

const COMPARED = 1000

const usePlan = (selector: Selector | undefined): Reply<RolloutPlan> | undefined => {
  const [plan, setPlan] = useState<Reply<RolloutPlan> | undefined>(undefined)
  const text = JSON.stringify(selector)
  useEffect(() => {
    setPlan(undefined)
    if (selector === undefined) return
    const stop = new AbortController()
    void request<RolloutPlan>("POST", `/api/rollouts?dry_run=true&limit=${COMPARED}`, {
      body: { selector },
      signal: stop.signal
    }).then((reply) => {
      if (!stop.signal.aborted) setPlan(reply)
    })
    return () => stop.abort()
  }, [text])
  return plan
}

const BlueprintChoice = (props: {
  readonly value: string
  readonly onChange: (id: string) => void
}): View => {
  const reply = useBlueprints()
  const all = reply?.ok === true ? reply.body.map(({ metadata }) => metadata) : []
  return (
    <FieldInput
      label="Blueprint"
      kind="choice"
      hint="All its servers get today’s definition."
      problem={reply?.ok === false ? reply.detail : undefined}
      value={props.value}
      choices={[
        ["", "Choose a blueprint"],
        ...all.map(({ id, name }) => [id, name === id ? id : `${name} (${id})`] as const)
      ]}
      onChange={props.onChange}
    />
  )
}

const NewRollout = (props: {
  readonly ids: ReadonlyArray<string> | undefined
  readonly onClose: () => void
}): View => {
  const { ids, onClose } = props
  const [blueprint, setBlueprint] = useState("")
  const { field, values: form } = useForm(emptyForm)
  const selector = ids !== undefined ? { ids } : blueprint === "" ? undefined : { blueprint_id: blueprint }
  const plan = usePlan(selector)
  const changing = plan?.ok === true ? plan.body.total - plan.body.up_to_date : 0
  const cannot =
    whyNot("change") ??
    (selector === undefined
      ? "Choose a blueprint first."
      : plan === undefined
        ? "The definitions are being compared."
        : !plan.ok
          ? plan.detail
          : changing === 0
            ? "No server would change."
            : undefined)
  return (
    <FormDialog
      title={ids === undefined ? "Roll out a blueprint" : `Roll out to ${counted(ids.length, "server")}`}
      button={changing === 0 ? "Start the rollout" : `Change ${counted(changing, "server")}`}
      whyNot={cannot}
      onSubmit={() => request<Rollout>("POST", "/api/rollouts", { body: { selector, ...bodyOf(form) } })}
      onDone={({ total }) => {
        clearSelection()
        done(`Rollout started: ${counted(total, "server")}`)
        go(addressOf.rollouts)
      }}
      onClose={onClose}
      class="is-wide"
    >
      <p class="muted">The servers get today’s blueprint and software, a few at a time.</p>
      {ids === undefined && <BlueprintChoice value={blueprint} onChange={setBlueprint} />}
      <div class="fields">
        {field("parallel", "At a time", "1 to 50 servers, or a percentage such as 25%.")}
        {field("canary", "Canary", "Pause after this many servers. Empty: no pause.", { kind: "number" })}
        {field("restart", "Servers that are up", "", { kind: "choice", choices: restarts })}
        {field("failure", "After a failure", "", { kind: "choice", choices: failures })}
        {field("timeout", "Start timeout, seconds", "Empty: that of the software.", { kind: "number" })}
        {form.restart === "now" &&
          field(
            "notify",
            "Line before a restart",
            "For the console of each running server: say Restart in 10 s"
          )}
        {form.restart === "now" &&
          field("seconds", "Seconds after the line", "Until the restart. Empty: 10.", { kind: "number" })}
      </div>
      {selector !== undefined &&
        drawReply(plan, "Comparing the definitions", (body) => <Plan plan={body} />, true)}
    </FormDialog>
  )
}

export const showNewRollout = (ids?: ReadonlyArray<string>): void =>
  openDialog((onClose) => <NewRollout ids={ids} onClose={onClose} />)

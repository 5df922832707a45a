import { useState } from "preact/hooks"
import { request, useNewest, useReply } from "../../api/http.ts"
import { useBlueprints, whyNot } from "../../api/session.ts"
import type { DefinitionChange, Rollout, RolloutPlan } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { count, counted } from "../../dom/format.ts"
import { FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { definitionChanges } from "../../parts/differences.tsx"
import { blueprintField, bodyOf, field, useForm } from "../../parts/form.tsx"
import { action, drawReply, empty, pageHead } from "../../parts/parts.tsx"
import { clearSelection } from "../../state/listed.ts"
import { done } from "../../state/notices.ts"
import { addressOf, go } from "../../state/router.ts"
import { nameOf } from "../../state/servers.ts"
import { isUnfinished, RolloutCard } from "./RolloutCard.tsx"

const COMPARED = 1000

const restarts = [
  ["now", "Restart them now"],
  ["when_stopped", "Wait for their next start"]
] as const

const failures = [
  ["pause", "Pause the rollout"],
  ["continue", "Continue with the others"],
  ["rollback", "Roll all servers back"]
] as const

const settings = [
  field("amount", "max_parallel", "At a time", "1 to 50 servers, or a percentage such as 25%."),
  field("number", "canary", "Canary", "Pause after this many servers. Empty: no pause."),
  field("choice", "restart", "Servers that are up", "", { choices: restarts }),
  field("choice", "on_failure", "After a failure", "", { choices: failures }),
  field("number", "start_timeout", "Start timeout, seconds", "Leave it empty for the value of the software.")
]

/** Only of a rollout that restarts servers. */
const notice = [
  field(
    "text",
    "notify",
    "Line before a restart",
    "For the console of each running server: say Restart in 10 s"
  ),
  field("number", "notify_seconds", "Seconds after the line", "Until the restart. Empty: 10.")
]

const NAMED = 6

interface Group {
  readonly ids: Array<string>
  readonly changes: ReadonlyArray<DefinitionChange>
  readonly problem: string | undefined
}

const groupsOf = ({ servers }: RolloutPlan): ReadonlyArray<Group> => {
  const groups = new Map<string, Group>()
  for (const { changes, problem, server_id } of servers) {
    const key = JSON.stringify([problem, changes])
    const group = groups.get(key) ?? { ids: [], changes, problem }
    group.ids.push(server_id)
    groups.set(key, group)
  }
  return [...groups.values()].toSorted((one, other) => other.ids.length - one.ids.length)
}

const namesOf = (ids: ReadonlyArray<string>): string => {
  const names = ids.slice(0, NAMED).map(nameOf)
  return ids.length > NAMED
    ? `${names.join(", ")} and ${counted(ids.length - NAMED, "other")}`
    : names.join(", ")
}

const Group = ({ changes, ids, problem }: Group): View => (
  <div key={ids[0]} class="plan-group">
    <h3>
      {counted(ids.length, "server")}
      <span class="muted">{namesOf(ids)}</span>
    </h3>
    {problem === undefined ? definitionChanges(changes) : <p class="problem">{problem}</p>}
  </div>
)

/** The changes of a rollout, once for all servers that have the same ones. */
const Plan = ({ plan }: { readonly plan: RolloutPlan }): View => {
  const { servers, total, up_to_date } = plan
  const changing = total - up_to_date
  return (
    <div class="stack rollout-plan">
      <p>
        {changing === 0
          ? total === 0
            ? "No server is selected."
            : `${total === 1 ? "The server has" : `All ${count(total)} servers have`} today’s definition already.`
          : [
              <strong>{counted(changing, "server")}</strong>,
              ` of ${count(total)} would change; they keep their data, ids and ports.`
            ]}
      </p>
      {servers.length < changing && <p class="note">{`The first ${count(servers.length)} are compared.`}</p>}
      {groupsOf(plan).map(Group)}
    </div>
  )
}

const NewRollout = ({ ids }: { readonly ids: ReadonlyArray<string> | undefined }): View => {
  const blueprints = useBlueprints()
  const { inputs, texts } = useForm({ max_parallel: "2", restart: "now", on_failure: "pause" })
  const { blueprint_id = "", restart } = texts
  const selector = ids !== undefined ? { ids } : blueprint_id === "" ? undefined : { blueprint_id }
  const plan = useReply<RolloutPlan>(
    selector &&
      ((signal) =>
        request("POST", `/api/rollouts?dry_run=true&limit=${COMPARED}`, { body: { selector }, signal })),
    [JSON.stringify(selector)],
    { isOther: true }
  )
  const changing = plan?.ok === true ? plan.body.total - plan.body.up_to_date : 0
  const cannot =
    whyNot("change") ??
    (selector === undefined
      ? "Choose a blueprint first."
      : plan === undefined
        ? "The definitions are being compared."
        : !plan.ok
          ? `${plan.detail} ${plan.hint}`
          : changing === 0
            ? "No server would change."
            : undefined)
  const shown = restart === "now" ? [...settings, ...notice] : settings
  return (
    <FormDialog
      title={ids === undefined ? "Roll out a blueprint" : `Roll out to ${counted(ids.length, "server")}`}
      button={changing === 0 ? "Start the rollout" : `Change ${counted(changing, "server")}`}
      whyNot={cannot}
      onSubmit={() =>
        request<Rollout>("POST", "/api/rollouts", { body: { selector, ...bodyOf(shown, texts) } })
      }
      onDone={({ total }) => {
        clearSelection()
        done(`Rollout started: ${counted(total, "server")}`)
        go(addressOf.rollouts)
      }}
      class="is-wide"
    >
      <p class="muted">The servers get today’s blueprint and software, a few at a time.</p>
      {ids === undefined &&
        inputs([blueprintField(blueprints, "Choose a blueprint", "All its servers get today’s definition.")])}
      {inputs(shown)}
      {plan?.ok === true && <Plan plan={plan.body} />}
    </FormDialog>
  )
}

export const showNewRollout = (ids?: ReadonlyArray<string>): void => openDialog(<NewRollout ids={ids} />)

/** Milliseconds between two readings, while a rollout is under way and otherwise. */
const BUSY = 1500
const IDLE = 10_000

const start = () =>
  action({
    text: "New rollout",
    icon: "plus",
    class: "primary",
    whyNot: whyNot("change"),
    onClick: () => showNewRollout()
  })

/** The rollouts, newest first; those under way are followed. */
export const RolloutsPage = (): View => {
  const [isBusy, setBusy] = useState(true)
  const { again, all, more, reply } = useNewest<Rollout>("/api/rollouts", isBusy ? BUSY : IDLE)
  const hasUnfinished = all.some(isUnfinished)
  if (reply !== undefined && isBusy !== hasUnfinished) setBusy(hasUnfinished)
  return (
    <div>
      {pageHead(
        "Rollouts",
        "Today’s definitions for many servers, a few at a time",
        <span class="grow" />,
        all.length > 0 && start()
      )}
      {drawReply(reply, "Loading the rollouts", () =>
        all.length === 0 ? (
          empty(
            "layers",
            "No rollout yet",
            "After a blueprint has changed, a rollout gives the change to its servers. The difference is shown before.",
            start()
          )
        ) : (
          <div class="rollouts">
            {all.map((rollout) => (
              <RolloutCard key={rollout.id} rollout={rollout} now={Date.now()} onChanged={again} />
            ))}
          </div>
        )
      )}
      {more !== undefined && action({ text: "Show more", onClick: more })}
    </div>
  )
}

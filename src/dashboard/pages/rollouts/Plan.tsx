import type { DefinitionChange, RolloutPlan } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { count, counted } from "../../dom/format.ts"
import { definitionChanges } from "../../parts/differences.tsx"
import { nameOf } from "../../state/servers.ts"

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
export const Plan = ({ plan }: { readonly plan: RolloutPlan }): View => {
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

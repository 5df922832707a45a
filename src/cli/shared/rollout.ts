/** The start and the progress of rollouts: `muster rollouts` and `muster blueprints rollout`. */
import { Array as Arr, Console, Effect, Schema } from "effect"
import { type Command, Flag } from "effect/cli"
import { named } from "../../contract/domain/errors.ts"
import { replaceHostile } from "../../contract/domain/NodeText.ts"
import {
  isOver,
  OnFailure,
  Percentage,
  Restarting,
  type RevisionChange,
  type Rollout,
  type RolloutPlan
} from "../../contract/domain/Rollout.ts"
import type { Selector } from "../../contract/domain/Selector.ts"
import type { DefinitionChange } from "../../contract/domain/ServerDefinition.ts"
import { choiceFlag, given, numberFlag, switchFlag, textFlag } from "./command.ts"
import { CommandError, withCommands } from "./failures.ts"
import { ask, RETRY_PAUSE, reconnecting, whileReachable } from "./musterClient.ts"
import { conditionsOf, labelledServers } from "./named.ts"
import {
  formatOf,
  jsonOf,
  type Listing,
  type OutputOptions,
  outputFlags,
  printList,
  printOne,
  tableOfItems,
  wide
} from "./output.ts"
import { confirm, note, yesFlag } from "./terminal.ts"
import { secondsFlag } from "./times.ts"

const textOf = (value: unknown): string =>
  value === undefined || value === null ? "" : typeof value === "string" ? value : jsonOf(value)

/** Characters of a value in a table: the script of an installation has thousands. */
const MOST_SHOWN = 60

/** Returns a value for a table: of a long one, the beginning of the first line that the other value does not have. */
const shortText = (value: unknown, other: unknown): string => {
  const text = textOf(value)
  if (text.length <= MOST_SHOWN) return text
  const [lines, others] = [text.split("\n"), textOf(other).split("\n")]
  const at = Math.max(
    0,
    lines.findIndex((line, index) => line !== others[index])
  )
  const line = [...(lines[at] ?? "")]
  const where = lines.length === 1 ? "" : `line ${at + 1}: `
  return `${where}${line.slice(0, MOST_SHOWN).join("")}${line.length > MOST_SHOWN ? "…" : ""}`
}

export const changes: Listing<DefinitionChange> = {
  columns: {
    path: ({ path }) => path,
    from: ({ from, to }) => shortText(from, to),
    to: ({ from, to }) => shortText(to, from),
    needs: ({ needs }) => needs
  }
}

const NAMED = 10

/** Servers of a rollout that have kept their definition so far. */
const notBegun = ({ done, failed_total, rolled_back = 0, total, under_way, waiting }: Rollout): number =>
  Math.max(0, total - done - under_way - waiting - failed_total - rolled_back)

/** Returns the conditions of a selector as the command line writes them; the first ids in one condition. */
const selectorText = (selector: Selector): string => {
  const { ids = [] } = selector
  const more = ids.length > NAMED ? ",…" : ""
  return [
    ...conditionsOf(selector),
    ...(ids.length === 0 ? [] : [`ids=${ids.slice(0, NAMED).join(",")}${more}`])
  ].join(" ")
}

const revisionText = ({ blueprint_id, from, servers, to }: RevisionChange): string =>
  `${blueprint_id} ${from.version} (${from.revision}) -> ${to.version} (${to.revision}): ${servers}`

export const listing: Listing<Rollout> = {
  columns: {
    id: ({ id }) => id,
    state: ({ state }) => ({ text: state, color: state === "failed" ? "red" : undefined }),
    total: ({ total }) => String(total),
    done: ({ done }) => String(done),
    "under way": ({ under_way }) => String(under_way),
    "at next start": ({ waiting }) => String(waiting),
    failed: ({ failed_total }) => String(failed_total),
    "not begun": (rollout) => String(notBegun(rollout)),
    created: ({ created_at }) => created_at,
    by: wide(({ created_by }) => created_by?.name ?? ""),
    selector: wide(({ selector }) => selectorText(selector)),
    revisions: wide(({ revisions }) => revisions.map(revisionText).join("; ")),
    finished: wide(({ finished_at }) => finished_at ?? ""),
    parallel: wide(({ max_parallel }) => String(max_parallel)),
    restart: wide(({ restart }) => restart),
    "on failure": wide(({ on_failure }) => on_failure),
    notify: wide(({ notify }) => notify ?? ""),
    reason: wide(({ reason }) => withCommands(reason ?? "")),
    failures: wide(({ failed }) =>
      withCommands(failed.map(({ reason, server_id }) => `${server_id}: ${reason}`).join("; "))
    )
  }
}

export const rolloutFlags = {
  "max-parallel": Flag.String("max-parallel").pipe(
    Flag.withDescription(
      "Servers that are changed at a time: 1 to 50, or a percentage such as 25%; default 2"
    ),
    Flag.withSchema(Schema.Union([Schema.FiniteFromString, Percentage])),
    Flag.optional
  ),
  canary: numberFlag("canary", "Pause after this many servers, until `muster rollouts resume`"),
  restart: choiceFlag(
    "restart",
    Restarting.literals,
    "`now`: restart servers that are up; `when_stopped`: at their next start; default now"
  ),
  "on-failure": choiceFlag(
    "on-failure",
    OnFailure.literals,
    "After a failed server: pause, continue, or rollback of all; default pause"
  ),
  "start-timeout": secondsFlag(
    "start-timeout",
    "The time in which a restarted server must be running; default: that of its software"
  ),
  notify: textFlag("notify", "A line for the console of each running server before its restart"),
  "notify-seconds": numberFlag("notify-seconds", "Seconds between the line and the restart; default 10"),
  "dry-run": switchFlag(
    "dry-run",
    "Show the changes, once for all servers with the same ones, and make none"
  ),
  wait: switchFlag(
    "wait",
    "Show the progress until the rollout is over or pauses; end with 1 after a failure, and with 2 if it pauses after its canary"
  ),
  yes: yesFlag,
  ...outputFlags
} as const

export type RolloutInput = Command.Command.Config.Infer<typeof rolloutFlags>

const payloadOf = (selector: Selector, input: RolloutInput) => ({
  selector,
  ...given({
    canary: input.canary,
    notify: input.notify,
    notify_seconds: input["notify-seconds"],
    restart: input.restart,
    max_parallel: input["max-parallel"],
    on_failure: input["on-failure"],
    start_timeout: input["start-timeout"]
  })
})

const isPlan = (made: Rollout | RolloutPlan): made is RolloutPlan => "servers" in made

const PAGE = 1000

type Payload = ReturnType<typeof payloadOf>

const call = (
  payload: Payload,
  query: { readonly dry_run?: true; readonly limit?: string; readonly after?: string }
) => ask((muster) => muster.rollouts.create({ payload, query }))

const planOf = Effect.fnUntraced(function* (payload: Payload) {
  const servers: Array<RolloutPlan["servers"][number]> = []
  while (true) {
    const after = servers.at(-1)?.server_id
    const page = yield* call(payload, {
      dry_run: true,
      limit: String(PAGE),
      ...(after === undefined ? {} : { after })
    })
    if (!isPlan(page)) return yield* Effect.die("a dry run has started a rollout")
    servers.push(...page.servers)
    if (page.servers.length < PAGE) return { ...page, servers }
  }
})

const printPlan = Effect.fnUntraced(function* (
  flags: OutputOptions,
  plan: RolloutPlan,
  { blueprint_id }: Selector
) {
  const format = formatOf(flags)
  if (format === "json") return yield* Console.log(jsonOf(plan, 2))
  if (format === "jsonl" || format === "id") {
    const planned = { id: ({ server_id }: (typeof plan.servers)[number]) => server_id, columns: {} }
    return yield* printList(flags, planned, plan.servers, "")
  }
  const labelled = yield* labelledServers(blueprint_id === undefined ? {} : { blueprint_id })
  const groups = Arr.groupBy(plan.servers, ({ changes, problem }) => JSON.stringify([problem, changes]))
  for (const group of Object.values(groups)) {
    const [{ changes: its, problem }] = group
    yield* Console.log(named(group.map(({ server_id }) => labelled(server_id))))
    if (problem !== undefined) yield* Console.log(`  ${replaceHostile(problem, "?")}`)
    else yield* Console.log(tableOfItems(changes, its).replace(/^/gm, "  "))
  }
  const { servers, total, up_to_date } = plan
  yield* note(`${servers.length} of ${total} servers would change; ${up_to_date} have today's definition.`)
})

const MAX_FAILURES = 10

const progressOf = (rollout: Rollout): string => {
  const { done, failed_total, state, total, under_way, waiting } = rollout
  const left = notBegun(rollout)
  return [
    `${state}: ${done} of ${total} done`,
    `${under_way} under way`,
    ...(waiting > 0 ? [`${waiting} get it at their next start`] : []),
    ...(failed_total > 0 ? [`${failed_total} failed`] : []),
    ...(left > 0 ? [`${left} not begun`] : [])
  ].join(", ")
}

/** Whether a rollout continues without a caller. */
const isMoving = ({
  on_failure,
  restart,
  state,
  under_way,
  waiting,
  done,
  failed_total,
  total
}: Rollout): boolean =>
  !isOver(state) &&
  state !== "paused" &&
  // Servers that only wait for a start of their own may wait for ever.
  !(
    restart === "when_stopped" &&
    on_failure !== "rollback" &&
    under_way === 0 &&
    waiting > 0 &&
    done + waiting + failed_total === total
  )

/** Shows the progress of a rollout until it is over or pauses; fails unless all servers are done, or wait for a start. */
export const watchRollout = Effect.fnUntraced(function* (id: string) {
  const read = reconnecting(ask((muster) => muster.rollouts.get({ params: { rollout: id } })))
  let line = ""
  let end = yield* read
  while (true) {
    const now = progressOf(end)
    if (now !== line) yield* note(now)
    line = now
    if (!isMoving(end)) break
    yield* Effect.sleep(RETRY_PAUSE)
    end = yield* read
  }
  if (end.state === "done" || (!isOver(end.state) && end.state !== "paused")) return end
  const failures = end.failed.slice(0, MAX_FAILURES).map(({ reason, server_id }) => `${server_id}: ${reason}`)
  const crashed = end.failed.find(({ reason }) => reason.startsWith("crashed"))
  const isCanary = end.state === "paused" && end.failed_total === 0
  const next =
    end.state === "paused"
      ? `. \`muster rollouts resume ${id}\` continues it, \`muster rollouts abort ${id}\` ends it`
      : ""
  return yield* new CommandError({
    status: isCanary ? "refused" : "failed",
    message: [
      `rollout ${id} is ${end.state}${end.reason === undefined ? "" : ` (${end.reason})`}${next}.`,
      ...failures,
      ...(crashed === undefined
        ? []
        : [`\`muster servers crashes ${crashed.server_id} --lines 20\` shows the last lines of a crash.`])
    ].join("\n")
  })
}, whileReachable)

/** Starts a rollout for the servers of a selector, as the flags say. */
export const startRollout = Effect.fnUntraced(function* (selector: Selector, input: RolloutInput) {
  const payload = payloadOf(selector, input)
  const plan = yield* planOf(payload)
  if (input["dry-run"]) return yield* printPlan(input, plan, selector)
  const count = plan.servers.length
  if (payload.restart !== "when_stopped" && count > 0) {
    yield* confirm(`Change ${count} of ${plan.total} servers, and restart those that run?`, input.yes)
  }
  const made = yield* call(payload, {})
  if (isPlan(made)) return yield* Effect.die("a rollout was only planned")
  yield* printOne(input, listing, input.wait ? yield* watchRollout(made.id) : made)
})

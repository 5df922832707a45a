import { Console, Effect } from "effect"
import type { DrainPlan, MigrationProgress } from "../../contract/domain/Drain.ts"
import type { Node, NodeDetail } from "../../contract/domain/Node.ts"
import { command, given, numberFlag, switchFlag, textFlag } from "../shared/command.ts"
import { CommandError, withCommands, wrongUsage } from "../shared/failures.ts"
import { ask, RETRY_PAUSE, reconnecting, whileReachable } from "../shared/musterClient.ts"
import { labelledServers, nodeArgument, nodeNamed } from "../shared/named.ts"
import { type Listing, type OutputOptions, outputFlags, printList } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"
import { secondsFlag } from "../shared/times.ts"

/** A server of a node that is to be drained; `to`: its destination, `reason`: why it would stay. */
interface Leaving {
  readonly id: string
  readonly server: string
  readonly to: string
  readonly reason: string
}

const listing: Listing<Leaving> = {
  id: ({ id }) => id,
  columns: {
    server: ({ server }) => server,
    to: ({ to }) => to,
    "stays, because": ({ reason }) => withCommands(reason)
  }
}

const isPlan = (answer: NodeDetail | DrainPlan): answer is DrainPlan => "migrations_total" in answer

export const servers = (count: number): string => (count === 1 ? "1 server" : `${count} servers`)

/** Returns the sentence about the servers that are not saved: they stay until they stop, and are deleted then. */
const runningOut = ({ running_out }: Pick<DrainPlan, "running_out">): string =>
  running_out === 0 ? "" : ` Not moved, because not saved: ${servers(running_out)}.`

/** Shows what a drain with `move` would do with each saved server of a node. */
export const preview = Effect.fnUntraced(function* (node: Node, flags: OutputOptions) {
  const answer: NodeDetail | DrainPlan = yield* ask((muster) =>
    muster.nodes.drained({
      params: { node: node.id },
      query: { dry_run: true },
      payload: { drained: true, move: true }
    })
  )
  // The query asks for a plan.
  if (!isPlan(answer)) return
  const { blocked, migrations, migrations_total } = answer
  const labelled = yield* labelledServers({ node_id: node.id })
  const leaving: ReadonlyArray<Leaving> = [
    ...migrations.map(({ server_id, to_name }) => ({
      id: server_id,
      server: labelled(server_id),
      to: to_name,
      reason: ""
    })),
    ...blocked.flatMap(({ reason, server_ids }) =>
      server_ids.map((id) => ({ id, server: labelled(id), to: "", reason }))
    )
  ]
  yield* printList(flags, listing, leaving, `No saved servers are on ${node.name}.`)
  const stay = blocked.reduce((sum, { total }) => sum + total, 0)
  yield* note(
    `${migrations_total} would migrate, ${stay} would stay.${runningOut(answer)} Nothing was changed.`
  )
})

/** Checks without progress after which the wait for a node ends: no server can leave it, or the node is away. */
const LOOKS = 3
const LOOKS_AWAY = 10

/** Returns why no server can leave a node now, if the node is the reason. */
const awayOf = ({ connected, key, unreachable }: NodeDetail): string | undefined => {
  if (connected) return undefined
  if (unreachable !== undefined) return `it cannot be called: ${unreachable}`
  return key === undefined ? "it is not connected" : `its key is ${key}`
}

const lineOf = ({ left, servers: all }: MigrationProgress, away: string | undefined): string => {
  const count = (state: string) => all.filter((one) => one.state === state).length
  const parts = ["stopping", "transferring", "returning", "waiting", "blocked"].flatMap((state) =>
    count(state) === 0 ? [] : [`${count(state)} ${state}`]
  )
  return `${servers(left)} left: ${parts.join(", ")}${away === undefined ? "" : `; ${away}`}`
}

const changedMeanwhile = (node: Node) =>
  CommandError.failed(
    `the drain of ${node.name} no longer migrates its servers: another call has changed it.`
  )

const cannotLeave = (node: Node, left: number, away: string | undefined) =>
  CommandError.failed(
    away === undefined
      ? `${servers(left)} cannot leave ${node.name}.`
      : `${servers(left)} cannot leave ${node.name}: ${away}. They move once it is back; \`muster nodes undrain ${node.id}\` cancels that.`
  )

/** Prints the progress until no saved server is left, or no migration continues. */
const waitUntilEmpty = Effect.fnUntraced(function* (node: Node) {
  let line = ""
  let stuck = 0
  while (true) {
    const detail = yield* reconnecting(ask((muster) => muster.nodes.get({ params: { node: node.id } })))
    const { move } = detail
    const away = awayOf(detail)
    if (move === undefined) return yield* changedMeanwhile(node)
    if (move.left === 0) return move
    const now = lineOf(move, away)
    // One check may fall between two migrations, and a node may be started again.
    const isStuck = away !== undefined || move.servers.every((one) => one.state === "blocked")
    stuck = isStuck && now === line ? stuck + 1 : isStuck ? 1 : 0
    if (now !== line) yield* Console.log(now)
    line = now
    if (stuck >= (away === undefined ? LOOKS : LOOKS_AWAY)) {
      const labelled = yield* labelledServers({ node_id: node.id })
      for (const { reason, server_id } of move.servers) {
        if (reason !== undefined) yield* Console.error(`${labelled(server_id)}: ${withCommands(reason)}`)
      }
      return yield* cannotLeave(node, move.left, away)
    }
    yield* Effect.sleep(RETRY_PAUSE)
  }
}, whileReachable)

const drained = (node: Node, detail: NodeDetail): string => {
  const { move } = detail
  if (move === undefined) return `Node ${node.name} is drained: it gets no new servers.`
  const away = move.left === 0 ? undefined : awayOf(detail)
  const stays = away === undefined ? "" : ` None can leave it now: ${away}.`
  return `Node ${node.name} is drained; ${servers(move.left)} to move.${runningOut(move)}${stays}`
}

export const drain = command("drain", {
  description:
    "Place no new servers on a node, except those that name it with node_id; with --move, migrate its saved servers",
  examples: {
    "muster nodes drain node-2 --dry-run": "Which servers would migrate, and whether there is room",
    "muster nodes drain node-2 --move --wait": "Migrate all saved servers, with the progress"
  },
  input: {
    node: nodeArgument,
    move: switchFlag("move", "Move its saved servers to other nodes"),
    wait: switchFlag(
      "wait",
      "With --move: wait until no saved server is left on the node; exit with 1 and the reasons if some cannot leave"
    ),
    parallel: numberFlag("parallel", "With --move: servers that leave at a time, 1 to 50; default 2"),
    deadline: secondsFlag(
      "deadline",
      "With --move: when the rest leaves at once, and servers that cannot leave are stopped: 30m, 2h from now; default: never"
    ),
    notify: textFlag(
      "notify",
      "With --move: a line for the console of each running server before it is stopped"
    ),
    "notify-seconds": numberFlag(
      "notify-seconds",
      "With --move: seconds between the line and the stop; default 10"
    ),
    "dry-run": switchFlag(
      "dry-run",
      "List the servers of the node and what --move does with each, and change nothing"
    ),
    ...outputFlags
  },
  *run({ "dry-run": isPreview, move, node: text, wait, output, json, ...chosen }) {
    const flags = { output, json }
    const { "notify-seconds": seconds, ...others } = chosen
    const choices = given({ ...others, notify_seconds: seconds })
    const [needsMove] = [...(wait ? ["wait"] : []), ...Object.keys(choices)]
    if (needsMove !== undefined && !move) {
      const name = needsMove.replace("_", "-")
      return yield* wrongUsage(`--${name} goes with --move: without it the node keeps its servers.`)
    }
    const node = yield* nodeNamed(text)
    if (isPreview) return yield* preview(node, flags)
    const detail = yield* ask((muster) =>
      muster.nodes.drained({
        params: { node: node.id },
        query: {},
        payload: { drained: true, ...(move ? { move } : {}), ...choices }
      })
    )
    if ("connected" in detail) yield* Console.log(drained(node, detail))
    if (!wait) return
    const end = yield* waitUntilEmpty(node)
    yield* Console.log(`No saved server is left on ${node.name}.${runningOut(end)}`)
  }
})

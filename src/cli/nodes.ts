import { Console, Effect, Schedule } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { commandSettings } from "../config/command.ts"
import { withSettings } from "../config/help.ts"
import { StartError } from "../config/StartError.ts"
import type { MigrationProgress } from "../domain/Migration.ts"
import { type Node, type NodeDetail, nodeState } from "../domain/Node.ts"
import { ask, CommandClient } from "./musterClient.ts"
import { table } from "./table.ts"

const PAUSE = "1 second"
/** Seconds to wait for a service that restarts. */
const PATIENCE = 60
/** Checks without progress after which the wait for a node ends: no server can leave it, or the node is away. */
const LOOKS = 3
const LOOKS_AWAY = 10

const servers = (count: number) => (count === 1 ? "1 server" : `${count} servers`)

const isNode = (one: Node | string): one is Node => typeof one !== "string"

const nodesOf = Effect.map(
  ask((muster) => muster.nodes.list({ query: {} })),
  (list) => [...list].filter(isNode)
)

/** Returns the node with this id, or the only node with this name. */
const nodeNamed = Effect.fnUntraced(function* (text: string) {
  const all = yield* nodesOf
  const byId = all.find((node) => node.id === text)
  if (byId !== undefined) return byId
  const [node, ...others] = all.filter((one) => one.name === text)
  if (node === undefined) {
    return yield* new StartError({
      message: `node not found: ${text}. \`muster nodes list\` shows all nodes.`
    })
  }
  if (others.length > 0) {
    const ids = [node, ...others].map((one) => one.id).join(", ")
    return yield* new StartError({
      message: `several nodes have the name ${text}: name one by its id (${ids}).`
    })
  }
  return node
})

const argument = { node: Argument.String("node").pipe(Argument.withDescription("Id or name of the node")) }

const columns = ["id", "name", "location", "state", "servers"]

const rowOf = (node: NodeDetail) => [node.id, node.name, node.location, nodeState(node), String(node.servers)]

const list = Command.make(
  "list",
  {
    json: Flag.Boolean("json").pipe(
      Flag.withDescription("As JSON: each node as GET /api/nodes/:node returns it"),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function* ({ json }) {
    const nodes = yield* Effect.forEach(yield* nodesOf, ({ id }) =>
      ask((muster) => muster.nodes.get({ params: { node: id } }))
    )
    if (json) return yield* Console.log(JSON.stringify(nodes, null, 2))
    if (nodes.length === 0) return yield* Console.log("No nodes. `muster node` runs one.")
    yield* Console.log(table(columns, nodes.map(rowOf)))
    for (const { name, unreachable } of nodes) {
      if (unreachable !== undefined) yield* Console.error(`${name} cannot be called: ${unreachable}`)
    }
  })
).pipe(
  Command.withDescription(
    "List nodes: id, name, location, state (connected, unreachable, away, key revoked or expired; drained; plain HTTP), servers"
  ),
  Command.provide(CommandClient)
)

/** Returns why no server can leave a node now; undefined: the node is not the reason. */
const awayOf = ({ connected, key, unreachable }: NodeDetail): string | undefined => {
  if (connected) return undefined
  if (unreachable !== undefined) return `it cannot be called: ${unreachable}`
  return key === undefined ? "it is not connected" : `its key is ${key}`
}

/** Returns the progress in one line. */
const lineOf = ({ left, servers: all }: MigrationProgress, away: string | undefined): string => {
  const count = (state: string) => all.filter((one) => one.state === state).length
  const parts = ["stopping", "transferring", "returning", "waiting", "blocked"].flatMap((state) =>
    count(state) === 0 ? [] : [`${count(state)} ${state}`]
  )
  return `${servers(left)} left: ${parts.join(", ")}${away === undefined ? "" : `; ${away}`}`
}

const changedMeanwhile = (node: Node) =>
  new StartError({
    message: `the drain of ${node.name} no longer migrates its servers: another call has changed it.`
  })

const cannotLeave = (node: Node, left: number, away: string | undefined) =>
  new StartError({
    message:
      away === undefined
        ? `${servers(left)} cannot leave ${node.name}.`
        : `${servers(left)} cannot leave ${node.name}: ${away}. They move once it is back; \`muster nodes undrain ${node.id}\` cancels that.`
  })

/** Prints the progress until no saved server is left, or no migration continues. */
const waitUntilEmpty = Effect.fnUntraced(function* (node: Node) {
  let line = ""
  let stuck = 0
  while (true) {
    const detail = yield* ask((muster) => muster.nodes.get({ params: { node: node.id } })).pipe(
      Effect.retry({ schedule: Schedule.spaced(PAUSE), times: PATIENCE })
    )
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
      for (const { reason, server_id } of move.servers) {
        if (reason !== undefined) yield* Console.error(`${server_id}: ${reason}`)
      }
      return yield* cannotLeave(node, move.left, away)
    }
    yield* Effect.sleep(PAUSE)
  }
})

const runningOut = ({ running_out }: MigrationProgress) =>
  running_out === 0 ? "" : ` Not moved, because not saved: ${servers(running_out)}.`

const drained = (node: Node, detail: NodeDetail): string => {
  const { move } = detail
  if (move === undefined) return `Node ${node.name} is drained: it gets no new servers.`
  const away = move.left === 0 ? undefined : awayOf(detail)
  const stays = away === undefined ? "" : ` None can leave it now: ${away}.`
  return `Node ${node.name} is drained; ${servers(move.left)} to move.${runningOut(move)}${stays}`
}

const drain = Command.make(
  "drain",
  {
    ...argument,
    move: Flag.Boolean("move").pipe(
      Flag.withDescription("Move its saved servers to other nodes"),
      Flag.withDefault(false)
    ),
    wait: Flag.Boolean("wait").pipe(
      Flag.withDescription(
        "With --move: wait until no saved server is left on the node; exit with 1 and the reasons if some cannot leave"
      ),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function* ({ move, node: text, wait }) {
    if (wait && !move) {
      return yield* new StartError({
        message: "--wait goes with --move: without it the node keeps its servers."
      })
    }
    const node = yield* nodeNamed(text)
    const detail = yield* ask((muster) =>
      muster.nodes.drained({
        params: { node: node.id },
        payload: { drained: true, ...(move ? { move } : {}) }
      })
    )
    yield* Console.log(drained(node, detail))
    if (!wait) return
    const end = yield* waitUntilEmpty(node)
    yield* Console.log(`No saved server is left on ${node.name}.${runningOut(end)}`)
  })
).pipe(
  Command.withDescription(
    "Place no new servers on a node, except those that name it with node_id; with --move, migrate its saved servers"
  ),
  Command.provide(CommandClient)
)

const undrain = Command.make(
  "undrain",
  argument,
  Effect.fn(function* ({ node: text }) {
    const node = yield* nodeNamed(text)
    yield* ask((muster) => muster.nodes.drained({ params: { node: node.id }, payload: { drained: false } }))
    yield* Console.log(`Node ${node.name} gets servers again.`)
  })
).pipe(
  Command.withDescription("End the drain of a node; migrations that have not begun are cancelled"),
  Command.provide(CommandClient)
)

const remove = Command.make(
  "remove",
  {
    ...argument,
    force: Flag.Boolean("force").pipe(
      Flag.withDescription("Also while the node is connected"),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function* ({ force, node: text }) {
    const node = yield* nodeNamed(text)
    const { connected, unreachable } = yield* ask((muster) => muster.nodes.get({ params: { node: node.id } }))
    yield* ask((muster) =>
      muster.nodes.remove({ params: { node: node.id }, query: force ? { force: "true" } : {} })
    )
    yield* Console.log(`Node ${node.name} is removed.`)
    if (!connected && unreachable === undefined) return
    yield* Console.error(
      `Node ${node.name} still runs and registers again within seconds. Stop it, or revoke its key (\`muster keys revoke\`).`
    )
  })
).pipe(Command.withDescription("Remove a node that has no servers"), Command.provide(CommandClient))

/** `muster nodes list|drain|undrain|remove`, against the service that `MUSTER_URL` names. */
export const nodes = Command.make("nodes").pipe(
  Command.withShortDescription("List, drain and remove nodes of a running service"),
  Command.withDescription(
    withSettings("List, drain and remove nodes of a running service.", commandSettings)
  ),
  Command.withSubcommands([list, drain, undrain, remove])
)

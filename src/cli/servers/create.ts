import { Console, Effect, Exit, Option } from "effect"
import { Argument, Flag } from "effect/cli"
import type { CreationPlan } from "../../contract/api/ServersGroup.ts"
import type { NodeFit } from "../../contract/domain/Node.ts"
import { nearest } from "../../contract/domain/nearest.ts"
import { RunRule } from "../../contract/domain/RunRule.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { backupNamed } from "../shared/backup.ts"
import {
  choiceFlag,
  command,
  given,
  numberFlag,
  switchFlag,
  textArgument,
  textFlag
} from "../shared/command.ts"
import { CommandError, ifMissing, withCommands, wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { nodeNamed } from "../shared/named.ts"
import { watchOperation } from "../shared/operations.ts"
import { formatOf, jsonOf, type Listing, outputFlags, printList, tableOfItems } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"
import { durationOf, secondsFlag } from "../shared/times.ts"
import { followInstallation, installationPrinter } from "./installation.ts"
import { printServer, servers } from "./listing.ts"
import { envFlag, labelFlag, labelsOf, overridesOf, setFlag } from "./patch.ts"
import { timeoutFlag, waitFor } from "./wait.ts"

const GIB = 1024 ** 3

/** Console lines that a failed creation prints. */
const LAST_LINES = 20

const gib = (bytes: number): string => `${(bytes / GIB).toFixed(1)} GiB`

const candidates: Listing<NodeFit> = {
  columns: {
    node: ({ node_id }) => node_id,
    name: ({ node_name }) => node_name,
    fits: ({ fits }) => ({ text: fits ? "yes" : "no", color: fits ? "green" : "red" }),
    "memory free": ({ memory_free_bytes }) => gib(memory_free_bytes),
    "disk free": ({ disk_free_bytes }) => gib(disk_free_bytes),
    "ports free": ({ ports_free }) => String(ports_free),
    reason: ({ reason }) => reason ?? ""
  }
}

/** The service places the server on no node: the exit status is that of a lack of capacity. */
const noFit = (reasons: ReadonlyArray<string>) => CommandError.refused(reasons.join("; ") || "no node fits")

const printPlan = Effect.fnUntraced(function* (
  flags: Parameters<typeof printList>[0],
  plan: CreationPlan,
  blueprint: string
) {
  const format = formatOf(flags)
  if (format === "json" || format === "jsonl") {
    yield* Console.log(jsonOf(plan, format === "json" ? 2 : undefined))
  } else {
    yield* printList(flags, candidates, plan.candidates, "No nodes.")
  }
  if (plan.node_id === null) return yield* noFit(plan.warnings)
  yield* Effect.forEach(plan.warnings, (warning) => note(withCommands(warning)), { discard: true })
  yield* note(`A server of ${blueprint} would be placed on ${plan.node_id}. Nothing was created.`)
})

/** A server that is not saved is deleted after a crash: its crash is the reason. */
const whyDeleted = Effect.fnUntraced(function* ({ id }: Server) {
  const [crash] = yield* ask((muster) =>
    muster.servers.crashesOf({ params: { server: id }, query: {} })
  ).pipe(ifMissing(() => Effect.succeed([])))
  const message =
    crash === undefined ? "was deleted" : `crashed (${crash.reason}) and was deleted, as it is not saved`
  yield* Effect.forEach(crash?.lines.slice(-LAST_LINES) ?? [], (line) => note(`  ${line}`), { discard: true })
  return yield* CommandError.failed(`server ${id} ${message}`)
})

/** Waits for a new server, and shows its installation meanwhile. */
const untilUp = Effect.fnUntraced(function* (server: Server, starts: boolean, timeout: string) {
  yield* note(`Server ${server.id} installs on ${server.node_name}.`)
  const done = waitFor(server.id, starts ? "running" : "installed", timeout).pipe(
    ifMissing(() => whyDeleted(server))
  )
  let isUp = false
  const progress = installationPrinter(server.id, undefined, () => isUp)
  // A deleted server has no output.
  const unlessDeleted = ifMissing(() => Effect.void)
  const followed = Effect.timeoutOption(unlessDeleted(followInstallation(progress)), durationOf(timeout))
  const [found] = yield* Effect.all([Effect.exit(done), followed], { concurrency: "unbounded" })
  isUp = starts && Exit.isSuccess(found)
  // The installation is over before the server has started.
  if (isUp) yield* unlessDeleted(progress)
  return yield* found
})

/** A blueprint that does not exist: its failure names the nearest one. */
const withNearest = (failure: CommandError, blueprint: string) =>
  Effect.gen(function* () {
    if (!failure.message.startsWith("blueprint not found: ")) return yield* failure
    const { data } = yield* Effect.mapError(
      ask((muster) => muster.blueprints.list({ query: { limit: "1000" } })),
      () => failure
    )
    const found = nearest(
      blueprint,
      data.map(({ metadata }) => metadata.id)
    )
    return yield* found === undefined
      ? failure
      : new CommandError({ ...failure, message: `${failure.message} Did you mean ${found}?` })
  })

const startsByItself = (blueprint: string) =>
  Effect.map(
    ask((muster) => muster.blueprints.get({ params: { blueprint } })),
    ({ start }) => start === true
  )

/** Waits until a new server has the files of its backup. @error CommandError they could not be restored */
const untilRestored = Effect.fnUntraced(function* (server_id: Server["id"]) {
  const [restore] = yield* ask((muster) =>
    muster.operations.list({ query: { server_id, kind: "backup.restore", limit: "1" } })
  )
  if (restore !== undefined) yield* watchOperation(restore)
})

export const create = command("create", {
  description:
    "Create a server from a blueprint. With --wait, standard error shows the installation, and the exit status is 0 once the server is up, and 1 with the reason if that fails. If no node fits, the status is 2, and each node is listed with its reason.",
  examples: {
    "muster servers create demo --name lobby --start --wait": "Until it runs",
    "muster servers create demo --label team=a --set limits.memory_limit=512 --dry-run":
      "Which nodes would fit",
    "muster servers create --from-backup lobby:latest --name lobby2 --wait": "From a backup of a server"
  },
  input: {
    blueprint: textArgument("blueprint", "Id of the blueprint; default: that of --from-backup").pipe(
      Argument.optional
    ),
    "from-backup": textFlag(
      "from-backup",
      "Give the server the files, overrides, labels and name of a backup: its id, its name, or SERVER:latest"
    ),
    name: textFlag("name", "A name, which need not be unique"),
    node: textFlag("node", "Place the server on this node (id or name)"),
    label: labelFlag,
    set: setFlag,
    env: envFlag,
    expires: secondsFlag("expires", "Delete the server after this time: 30m, 12h, 7d"),
    run: choiceFlag(
      "run",
      RunRule.literals,
      "When its node starts the server by itself: after a restart of the node if it was up (unless_stopped), also after its creation, a migration and an upgrade (always), or never (manual); default: what the blueprint says"
    ),
    priority: numberFlag(
      "priority",
      "0 to 100: servers with a higher number are started first after a restart of their node"
    ),
    start: Flag.Boolean("start").pipe(
      Flag.withDescription("Start the server once it is installed; default: what the blueprint says"),
      Flag.optional
    ),
    wait: switchFlag(
      "wait",
      "Show the installation, and end once the server is installed, or running if it starts"
    ),
    timeout: timeoutFlag,
    "dry-run": switchFlag("dry-run", "Show which nodes fit, and create nothing"),
    ...outputFlags
  },
  *run(input) {
    const {
      blueprint: blueprintText,
      env,
      expires,
      label,
      name,
      node,
      priority,
      run,
      set,
      start,
      timeout,
      wait,
      ...others
    } = input
    const flags = { output: others.output, json: others.json }
    const overrides = yield* overridesOf({ set, env })
    const backup = yield* Effect.transposeOption(Option.map(others["from-backup"], backupNamed))
    const blueprint = Option.getOrUndefined(
      Option.orElse(blueprintText, () => Option.map(backup, ({ blueprint_id }): string => blueprint_id))
    )
    if (blueprint === undefined) return yield* wrongUsage("Name a blueprint, or a backup with --from-backup.")
    const payload = {
      blueprint_id: blueprint,
      ...(overrides === undefined ? {} : { overrides }),
      ...(label.length === 0 ? {} : { labels: yield* labelsOf(label) }),
      ...given({ name }),
      ...(Option.isSome(node) ? { node_id: (yield* nodeNamed(node.value)).id } : {}),
      ...given({ run, priority, start, expires_in: expires }),
      ...given({ from_backup: Option.map(backup, ({ id }) => id) })
    }
    const plan = ask((muster) => muster.servers.dryRun({ payload }))
    if (others["dry-run"]) return yield* printPlan(flags, yield* plan, blueprint)
    // The same request again after a break creates no second server.
    const headers = { "idempotency-key": crypto.randomUUID() }
    const created = yield* ask((muster) => muster.servers.create({ payload, headers })).pipe(
      Effect.tapError(({ status }) =>
        status === "refused"
          ? Effect.matchEffect(plan, {
              onSuccess: ({ candidates: all }) =>
                all.length === 0 ? Effect.void : note(tableOfItems(candidates, all)),
              onFailure: () => Effect.void // The refusal itself is printed.
            })
          : Effect.void
      ),
      ifMissing((failure) => withNearest(failure, blueprint))
    )
    if (!wait) return yield* printServer(flags, created.id)
    const isAlways = (Option.getOrUndefined(run) ?? overrides?.run) === "always"
    const starts = Option.isSome(start) ? start.value : isAlways || (yield* startsByItself(blueprint))
    const up = yield* untilUp(created, starts, timeout)
    if (Option.isSome(backup)) yield* untilRestored(created.id)
    yield* printList(flags, servers, [up], "")
  }
})

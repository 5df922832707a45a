import { Array, Console, Effect, Option } from "effect"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import type { BulkOutcomes, Selector } from "../../contract/domain/Selector.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { command, given, switchFlag } from "../shared/command.ts"
import { CommandError, withCommands, wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import {
  queryOf,
  selectionOf,
  selectorFlag,
  serverArguments,
  serverNamed,
  serversOf
} from "../shared/named.ts"
import { confirm, yesFlag } from "../shared/terminal.ts"
import { secondsFlag } from "../shared/times.ts"
import { type State, timeoutFlag, waitFor } from "./wait.ts"

export const bulkInput = {
  server: serverArguments,
  selector: selectorFlag,
  yes: yesFlag
} as const

export interface BulkInput {
  readonly server: ReadonlyArray<string>
  readonly selector: ReadonlyArray<string>
  readonly yes: boolean
}

export type Target = Pick<Server, "id" | "name" | "status" | "save">

interface Targets {
  readonly servers: ReadonlyArray<Target>
  readonly isSelected: boolean
}

/** Finds the servers of a command. @error CommandError neither arguments nor a selector, or both (usage) */
export const targetsOf = Effect.fnUntraced(function* ({ selector, server }: BulkInput) {
  if ((selector.length === 0) === (server.length === 0)) {
    return yield* wrongUsage(
      "Name servers by id or name, or select them with --selector label=k=v; not both."
    )
  }
  if (server.length > 0) {
    const found = yield* Effect.forEach(server, (text) => serverNamed(text, ["save"]), { concurrency: 4 })
    const servers = [...new Map(found.map((one) => [one.id, one])).values()]
    return { servers, isSelected: false } satisfies Targets
  }
  const query = queryOf(yield* selectionOf(selector))
  const servers = yield* serversOf({ ...query, include: "name,status,save" })
  return { servers, isSelected: true } satisfies Targets
})

const LISTED = 5

/** Returns the servers for a question: `3 servers (a, b, c)`. */
export const described = (servers: Targets["servers"]): string => {
  const names = servers.slice(0, LISTED).map(({ id, name }) => (name ? `${id} "${name}"` : id))
  const more = servers.length > LISTED ? ", ..." : ""
  return `${servers.length === 1 ? "1 server" : `${servers.length} servers`} (${names.join(", ")}${more})`
}

/** @param consequence of the action */
export const confirmed = (verb: string, { servers }: Targets, yes: boolean, consequence = "") =>
  confirm(`${verb} ${described(servers)}?${consequence}`, yes)

/** Servers of one request: a service has a minute to respond to it. */
const CHUNK = 500

interface Action<R> {
  readonly one: (server: Server["id"]) => Effect.Effect<void, CommandError, R>
  readonly many: (selector: Selector) => Effect.Effect<BulkOutcomes, CommandError, R>
}

/** Carries out an action on servers and prints each result. @error CommandError some servers refuse (refused) */
export const acted = Effect.fnUntraced(function* <R>(
  done: (server: Target) => string,
  { isSelected, servers }: Targets,
  { many, one }: Action<R>
) {
  const [only] = servers
  if (!isSelected && servers.length === 1 && only !== undefined) {
    yield* Effect.mapError(
      one(only.id),
      ({ message, status }) =>
        new CommandError({
          // The command is right: a 422 is a start that cannot succeed (spec 3.16).
          status: status === "usage" ? "refused" : status,
          message: withCommands(message, only.id)
        })
    )
    return yield* Console.log(`${only.id} ${done(only)}`)
  }
  const failed: globalThis.Array<string> = []
  for (const chunk of Array.chunksOf(servers, CHUNK)) {
    const outcomes = yield* many({ ids: chunk.map(({ id }) => id) })
    const found = new Map(chunk.map((server): [string, Target] => [server.id, server]))
    for (const [id, outcome] of Object.entries(outcomes)) {
      const server = found.get(id)
      if ("code" in outcome) failed.push(withCommands(`${id}: ${outcome.detail}. ${outcome.hint}`, id))
      else if (server !== undefined) yield* Console.log(`${id} ${done(server)}`)
    }
  }
  if (failed.length > 0) {
    return yield* CommandError.refused(failed.join("\n"))
  }
})

interface Power {
  readonly action: PowerAction
  readonly verb: string
  readonly done: string
  /** The first sentence is that of the list of commands. */
  readonly description: string
  readonly until: State | "paused"
}

/** Actions that take nothing from players. */
const harmless: ReadonlyArray<PowerAction> = ["start", "unpause"]

/** The flags that some actions have. */
interface Waiting {
  readonly wait?: boolean
  readonly timeout?: string
  readonly grace?: Option.Option<number>
}

/** Says which servers a stop deletes, for a question; empty: none. */
const endingOf = (servers: ReadonlyArray<Target>): string => {
  const ending = servers.filter(({ save, status }) => save === false && status !== "offline")
  if (ending.length === 0) return ""
  return servers.length === 1
    ? " It is not saved: once it has stopped, it is deleted with its files."
    : ` ${ending.length} of them ${ending.length === 1 ? "is" : "are"} not saved: ${described(ending)}. Once stopped, such a server is deleted with its files.`
}

const act = Effect.fnUntraced(function* ({ action, done, until, verb }: Power, input: BulkInput & Waiting) {
  const targets = yield* targetsOf(input)
  const { servers } = targets
  if (servers.length === 0) return yield* Console.error("No servers match.")
  const doomed = until === "offline" ? endingOf(servers) : ""
  if (doomed !== "" || (targets.isSelected && !harmless.includes(action)))
    yield* confirmed(verb, targets, input.yes, doomed)
  const { grace = Option.none(), timeout = "0s", wait = false } = input
  const seconds = given({ wait_seconds: grace })
  const result = ({ status }: Target) =>
    status === until && action !== "restart" ? `is ${until} already` : done
  yield* acted(result, targets, {
    one: (server) =>
      ask((muster) => muster.servers.power({ params: { server }, payload: { action, ...seconds } })),
    many: (selector) =>
      ask((muster) => muster.servers.powerMany({ payload: { selector, action, ...seconds } }))
  })
  if (!wait || until === "paused") return
  // A server that is not saved is deleted once it has stopped.
  const isDone = ({ status }: CommandError) => until === "offline" && status === "notFound"
  yield* Effect.forEach(
    servers,
    ({ id }) =>
      waitFor(id, until, timeout).pipe(
        Effect.matchEffect({
          onSuccess: () => Console.log(`${id} is ${until}`),
          onFailure: (error) => (isDone(error) ? Console.log(`${id} is deleted`) : Effect.fail(error))
        })
      ),
    { concurrency: 16, discard: true }
  )
})

const flags = {
  ...bulkInput,
  wait: switchFlag("wait", "Wait for the state that the action leads to"),
  timeout: timeoutFlag
}

const grace = secondsFlag(
  "grace",
  "Kill the server if it still runs after this time; default: its stop timeout",
  "1h"
)

const textsOf = ({ action, description }: Power) => ({
  description,
  examples: {
    [`muster servers ${action} survival-1`]: "A server by its name",
    [`muster servers ${action} --selector label=team=a --yes`]: "All servers of a team, without a question"
  }
})

const plain = (power: Power) =>
  command(power.action, {
    ...textsOf(power),
    input: flags,
    *run(input) {
      yield* act(power, input)
    }
  })

const graceful = (power: Power) =>
  command(power.action, {
    ...textsOf(power),
    input: { ...flags, grace },
    *run(input) {
      yield* act(power, input)
    }
  })

/** The service responds once the server is in the state. */
const atOnce = (power: Power) =>
  command(power.action, {
    ...textsOf(power),
    input: bulkInput,
    *run(input) {
      yield* act(power, input)
    }
  })

export const start = plain({
  action: "start",
  verb: "Start",
  done: "starts",
  until: "running",
  description: "Start servers. A server that is being installed starts once it is installed."
})

export const stop = graceful({
  action: "stop",
  verb: "Stop",
  done: "stops",
  until: "offline",
  description:
    "Stop servers. A server that is not saved is deleted once it has stopped: the command asks first."
})

export const restart = graceful({
  action: "restart",
  verb: "Restart",
  done: "restarts",
  until: "running",
  description: "Stop servers and start them again."
})

export const kill = plain({
  action: "kill",
  verb: "Kill",
  done: "is killed",
  until: "offline",
  description:
    "End the processes of servers at once. A server that is not saved is then deleted: the command asks first."
})

export const pause = atOnce({
  action: "pause",
  verb: "Pause",
  done: "is paused",
  until: "paused",
  description:
    "Freeze the processes of running servers. They keep their memory and their connections, but do nothing until `muster servers unpause`; a start or a stop unpauses a server first."
})

export const unpause = atOnce({
  action: "unpause",
  verb: "Unpause",
  done: "is unpaused",
  until: "running",
  description: "Let paused servers run on."
})

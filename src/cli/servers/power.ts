import { Console, Effect, Option } from "effect"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import type { CommandError } from "../shared/CommandError.ts"
import { command, given, switchFlag } from "../shared/command.ts"
import { ask } from "../shared/musterClient.ts"
import { secondsFlag } from "../shared/times.ts"
import { acted, type BulkInput, bulkInput, confirmed, described, type Target, targetsOf } from "./bulk.ts"
import { type State, timeoutFlag, waitFor } from "./wait.ts"

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

/** `muster operations`: the tasks of servers that may last longer than a request. */
import { Console, Effect, Option } from "effect"
import { Command } from "effect/cli"
import {
  isOperation,
  type Operation,
  OperationKind,
  OperationState
} from "../../contract/domain/Operation.ts"
import type { BulkOutcomes } from "../../contract/domain/Selector.ts"
import { choiceFlag, command, given, group, limitFlag, textArgument, textFlag } from "./command.ts"
import { CommandError } from "./failures.ts"
import { ask, CommandClient, whileReachable } from "./musterClient.ts"
import { serverNamed } from "./named.ts"
import { type Listing, objectCommand, outputFlags, printList, printOne, sizeText, wide } from "./output.ts"
import { note } from "./terminal.ts"

const figure = (unit: "bytes" | "files", count: number): string =>
  unit === "bytes" ? sizeText(count) : String(count)

/** Returns the figures of an operation: `1200 of 4000 files`, `340 MiB`; nothing while they are unknown. */
export const progressOf = ({ progress }: Operation): string => {
  if (progress === undefined) return ""
  const { done, total, unit, waiting } = progress
  if (waiting !== undefined) return `waits: ${waiting}`
  const of = total === 0 ? "" : ` of ${figure(unit, total)}`
  return `${figure(unit, done)}${of}${unit === "files" ? " files" : ""}`
}

const percentOf = ({ progress }: Operation): string =>
  progress === undefined || progress.total === 0
    ? ""
    : `  ${Math.floor((100 * Math.min(progress.done, progress.total)) / progress.total)}%`

const colors = { done: "green", failed: "red", cancelled: "yellow" } as const

export const listing: Listing<Operation> = {
  columns: {
    id: ({ id }) => id,
    kind: ({ kind }) => kind,
    server: ({ server_id }) => server_id,
    state: ({ state }) =>
      state === "queued" || state === "running" ? state : { text: state, color: colors[state] },
    progress: progressOf,
    begun: ({ created_at }) => created_at,
    ended: wide(({ finished_at }) => finished_at ?? ""),
    reason: ({ reason }) => reason ?? ""
  }
}

const CLEAR = "\r\u001b[K"

/** Waits for the end of an operation, with its figures on a terminal. @error CommandError it is not done */
export const watchOperation = Effect.fnUntraced(
  function* (begun: Operation | string) {
    const { stderr } = process
    const draw = (text: string) => {
      if (stderr.isTTY === true) stderr.write(`${CLEAR}${text}`)
    }
    const onProgress = (now: Operation) =>
      draw(`${now.kind} ${now.state}  ${progressOf(now)}${percentOf(now)}`)
    const end = yield* ask((muster) => muster.operationEnd(begun, { onProgress })).pipe(
      Effect.ensuring(Effect.sync(() => draw("")))
    )
    if (end.state === "done") return end
    const { id, reason, state } = end
    return yield* CommandError.failed(
      `operation ${id} ${state === "failed" ? "has failed" : "was cancelled"}: ${reason ?? "no reason is known"}`
    )
  },
  (wait) => whileReachable(wait)
)

/** Says which operation does the work, and waits for its end. */
export const endOf = (begun: Operation) =>
  Effect.andThen(
    note(`Operation ${begun.id} does the work; \`muster operations cancel ${begun.id}\` ends it.`),
    watchOperation(begun)
  )

/** Waits as {@link endOf}, and prints the figures. */
export const waitedFor = Effect.fnUntraced(function* (begun: Operation) {
  const end = yield* endOf(begun)
  const figures = progressOf(end)
  yield* Console.log(`${end.kind} is done${figures === "" ? "" : `: ${figures}`}`)
  if (end.reason !== undefined) yield* Console.log(end.reason)
})

/** Reports outcomes, or waits for the operation that makes many changes. */
export const madeOrWaited = <E, R>(
  made: BulkOutcomes | Operation,
  report: (outcomes: BulkOutcomes) => Effect.Effect<void, E, R>
) => (isOperation(made) ? waitedFor(made) : report(made))

const operationArgument = textArgument("operation", "Id of the operation")

const list = command("list", {
  description: "List operations, newest first. Those that have ended are kept for 24 h.",
  short: "List operations, newest first",
  examples: {
    "muster operations list": "The last 20",
    "muster operations list --server lobby --state running": "What runs for one server"
  },
  input: {
    server: textFlag("server", "Only those of a server: its id, the beginning of one, or its name"),
    kind: choiceFlag("kind", OperationKind.literals, "Only those of a kind"),
    state: choiceFlag("state", OperationState.literals, "Only those in a state"),
    limit: limitFlag("At most this many operations, 1 to 100; default 20", 20),
    ...outputFlags
  },
  *run({ kind, limit, server, state, ...flags }) {
    const named = yield* Effect.transposeOption(Option.map(server, (text) => serverNamed(text)))
    const server_id = Option.map(named, ({ id }) => id)
    const query = { limit: String(limit), ...given({ kind, state, server_id }) }
    const found = yield* ask((muster) => muster.operations.list({ query }))
    yield* printList(flags, listing, found, "No operations.")
  }
})

const show = objectCommand(
  "show",
  operationArgument,
  listing,
  (operation) => ask((muster) => muster.operations.get({ params: { operation } })),
  {
    description: "Show the state and the progress of an operation",
    examples: {
      "muster operations show 8h2kq0x4mb1zt9wd": "By its id",
      "muster operations show 8h2kq0x4mb1zt9wd --json": "With all fields"
    }
  }
)

const cancel = objectCommand(
  "cancel",
  operationArgument,
  listing,
  (operation) => ask((muster) => muster.operations.cancel({ params: { operation } })),
  {
    description: "Cancel an operation; what is unfinished is removed, what is done stays",
    examples: {
      "muster operations cancel 8h2kq0x4mb1zt9wd": "By its id",
      "muster operations cancel 8h2kq0x4mb1zt9wd && muster operations show 8h2kq0x4mb1zt9wd":
        "A running one ends once its node has cleaned up"
    }
  }
)

const wait = command("wait", {
  description:
    "Wait until an operation has ended. The command fails unless the operation is done, and prints the reason.",
  short: "Wait until an operation has ended",
  examples: {
    "muster operations wait 8h2kq0x4mb1zt9wd": "With its progress on a terminal",
    "muster operations wait 8h2kq0x4mb1zt9wd && muster servers start lobby": "Start the server afterwards"
  },
  input: { operation: operationArgument, ...outputFlags },
  *run({ operation, ...flags }) {
    yield* printOne(flags, listing, yield* watchOperation(operation))
  }
})

export const operations = group("operations", {
  short: "List, watch and cancel operations",
  description:
    "List, watch and cancel operations: tasks of servers that may last longer than a request, such as many changes of files.",
  subcommands: [list, show, cancel, wait]
}).pipe(Command.provide(CommandClient))

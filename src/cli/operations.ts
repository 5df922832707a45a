/** `muster operations`: the tasks of servers that may last longer than a request. */
import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { OperationKind, OperationState } from "../contract/domain/Operation.ts"
import { command, given, group, limitFlag, textFlag } from "./shared/command.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { serverNamed } from "./shared/named.ts"
import { listing, watchOperation } from "./shared/operation.ts"
import { objectCommand, outputFlags, printList, printOne } from "./shared/output.ts"

const operationArgument = Argument.String("operation").pipe(Argument.withDescription("Id of the operation"))

const list = command("list", {
  description: "List operations, newest first. Those that have ended are kept for 24 h.",
  short: "List operations, newest first",
  examples: {
    "muster operations list": "The last 20",
    "muster operations list --server lobby --state running": "What runs for one server"
  },
  input: {
    server: textFlag("server", "Only those of a server: its id, the beginning of one, or its name"),
    kind: Flag.Literals("kind", OperationKind.literals).pipe(
      Flag.withDescription("Only those of a kind"),
      Flag.optional
    ),
    state: Flag.Literals("state", OperationState.literals).pipe(
      Flag.withDescription("Only those in a state"),
      Flag.optional
    ),
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

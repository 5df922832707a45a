import { Console, Effect, Fiber, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import type { Server } from "../../domain/Server.ts"
import { stripAnsi } from "../../domain/stripAnsi.ts"
import { ask, askStream } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"

/** Lines of one request. */
const PAGE = 1000

/** Stands for the unknown time of a line that the node has stored. */
const NO_TIME = "-"

/** Returns the newest lines of the console, oldest first. */
const newest = Effect.fnUntraced(function* (server: Server["id"], count: number) {
  const lines: Array<string> = []
  const per_page = String(Math.min(PAGE, Math.max(count, 1)))
  for (let page = 1; lines.length < count; page++) {
    const { data } = yield* ask((muster) =>
      muster.servers.logs({ params: { server }, query: { page: String(page), per_page } })
    )
    lines.unshift(...data)
    if (data.length < Number(per_page)) break
  }
  return count === 0 ? [] : lines.slice(-count)
})

/** How many of the first lines of the stream are the last of the stored ones, which have no ANSI sequences. */
const overlap = (stored: ReadonlyArray<string>, streamed: ReadonlyArray<string>): number => {
  const plain = streamed.map(stripAnsi)
  for (let count = Math.min(stored.length, plain.length); count > 0; count--) {
    const end = stored.slice(-count)
    if (end.every((line, at) => line === plain[at])) return count
  }
  return 0
}

/** Prints the stored lines and then, without a gap, those that follow. Ends when the server is deleted. */
const follow = Effect.fnUntraced(function* (
  server: Server["id"],
  tail: number,
  print: (line: string, isNew: boolean) => Effect.Effect<void>
) {
  // Lines that arrive before the stored ones are printed.
  const early: Array<string> = []
  let isReady = false
  const lines = askStream((muster) => Stream.unwrap(Effect.map(muster.console(server), ({ lines }) => lines)))
  const streaming = yield* Effect.forkChild(
    Stream.runForEach(lines, (line) =>
      isReady
        ? print(line, true)
        : Effect.sync(() => {
            early.push(line)
          })
    )
  )
  const stored = yield* newest(server, tail)
  yield* Effect.forEach(stored, (line) => print(line, false), { discard: true })
  yield* Effect.forEach(early.slice(overlap(stored, early)), (line) => print(line, true), { discard: true })
  isReady = true
  yield* Fiber.join(streaming)
})

/** `muster servers logs`. */
export const logs = Command.make(
  "logs",
  {
    server: serverArgument,
    follow: Flag.Boolean("follow").pipe(
      Flag.withAlias("f"),
      Flag.withDescription("Print new lines until Ctrl-C, or until the server is deleted"),
      Flag.withDefault(false)
    ),
    tail: Flag.Int("tail").pipe(
      Flag.withAlias("n"),
      Flag.withDescription("How many of the newest lines; default 100"),
      Flag.filter(
        (count) => count >= 0 && count <= 1_000_000,
        () => "a whole number from 0 to 1000000"
      ),
      Flag.withDefault(100)
    ),
    timestamps: Flag.Boolean("timestamps").pipe(
      Flag.withAlias("t"),
      Flag.withDescription(
        "Begin each line with the time at which this command received it; `-`: the line was stored before"
      ),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function* ({ follow: follows, server, tail, timestamps }) {
    const { id } = yield* serverNamed(server)
    const print = (line: string, isNew: boolean) =>
      Console.log(timestamps ? `${isNew ? new Date().toISOString() : NO_TIME} ${line}` : line)
    if (follows) return yield* follow(id, tail, print)
    yield* Effect.forEach(yield* newest(id, tail), (line) => print(line, false), { discard: true })
  })
).pipe(
  Command.withShortDescription("Print the console of a server"),
  Command.withDescription(
    "Print the console of a server. With -f, lines are printed as the server writes them, with their colours and without other control sequences."
  ),
  Command.withExamples([
    {
      command: "muster servers logs survival-1 -f --tail 50 --timestamps",
      description: "The last 50 lines, then each new line with its time"
    },
    { command: "muster servers logs k7f --tail 1000 > console.txt", description: "Into a file" }
  ])
)

import { createInterface, type Key } from "node:readline"
import { type Cause, Console, Effect, Queue, Stream } from "effect"
import type { Console as OpenConsole } from "../../client/console.ts"
import { CommandError } from "../shared/CommandError.ts"
import { command } from "../shared/command.ts"
import { ask, askStream, following } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { isInteractive, note, shown } from "../shared/terminal.ts"

/** Ctrl-], which leaves the console. */
const LEAVE = "\u001d"

const HISTORY = 1000

/** Reads lines from the terminal with editing and history; prints lines above the one that is being typed. */
const editor = Effect.gen(function* () {
  const typed = yield* Queue.unbounded<string, Cause.Done>()
  const reader = yield* Effect.acquireRelease(
    Effect.sync(() =>
      createInterface({
        input: process.stdin,
        output: process.stdout,
        terminal: true,
        historySize: HISTORY,
        prompt: "> "
      })
    ),
    (open) => Effect.sync(() => open.close())
  )
  const onKey = (_: string | undefined, key: Key) => {
    if (key.sequence === LEAVE) reader.close()
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => process.stdin.on("keypress", onKey)),
    () => Effect.sync(() => process.stdin.off("keypress", onKey))
  )
  reader.on("line", (line) => Queue.offerUnsafe(typed, line))
  reader.on("SIGINT", () => process.kill(process.pid, "SIGINT"))
  reader.on("close", () => Queue.endUnsafe(typed))
  reader.prompt()
  return {
    lines: Stream.fromQueue(typed),
    prompt: Effect.sync(() => reader.prompt(true)),
    print: (line: string) =>
      Effect.sync(() => {
        process.stdout.write(`\r\u001b[K${shown(line)}\u001b[0m\n`)
        reader.prompt(true)
      })
  }
})

type Editor = Effect.Success<typeof editor>

const withTerminal = Effect.fnUntraced(function* (
  { lines, send }: OpenConsole,
  { print, prompt, ...typed }: Editor
) {
  const shown = askStream(() => lines)
  const sent = Stream.runForEach(typed.lines, (line) =>
    Effect.andThen(line === "" ? Effect.void : ask(() => send(line)), prompt)
  )
  yield* following(Effect.raceFirst(Stream.runForEach(shown, print), sent), print)
})

const withPipe = ({ send }: OpenConsole) => {
  const lines = Stream.fromAsyncIterable(
    createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY }),
    (cause) => new CommandError({ status: "failed", message: `cannot read standard input: ${cause}` })
  )
  return Stream.runForEach(lines, (line) => ask(() => send(line)))
}

const attach = Effect.fnUntraced(function* (server: string) {
  const { id, status } = yield* serverNamed(server)
  const open = yield* ask((muster) => muster.console(id))
  if (status !== "running") yield* note(`The server is ${status}: it reads no lines now.`)
  if (!isInteractive()) return yield* following(withPipe(open))
  yield* note("Ctrl-] leaves the console; the server runs on.")
  yield* withTerminal(open, yield* editor)
  yield* Console.log("")
}, Effect.scoped)

export const console_ = command("console", {
  description:
    "Open the console of a server: lines of the server with their colours, and a line to type, with history. Ctrl-] or Ctrl-C leaves; neither reaches the server. If standard input or output is no terminal, the lines of the input are sent and none is printed: `servers logs -f` prints them.",
  examples: {
    "muster servers console survival-1": "Until Ctrl-]",
    "muster servers console k7f < commands.txt": "Send the lines of a file"
  },
  input: { server: serverArgument },
  *run({ server }) {
    yield* attach(server)
  }
})

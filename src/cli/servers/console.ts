import { createInterface, type Key } from "node:readline"
import { type Cause, Console, Effect, Fiber, Queue, Stream } from "effect"
import { Flag } from "effect/cli"
import {
  missingLines,
  type Console as OpenConsole,
  storedLines,
  type TimedLine
} from "../../client/console.ts"
import { stripAnsi } from "../../contract/domain/ConsoleLine.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { overlap } from "../../dashboard/dom/overlap.ts"
import { command, followFlag, switchFlag } from "../shared/command.ts"
import { CommandError, ifMissing } from "../shared/failures.ts"
import { ask, askAgain, askStream, following } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { isInteractive, note, shown } from "../shared/terminal.ts"

const PAGE = 1000

const NO_TIME = "-"

/** Returns the newest lines of the console with their times, oldest first. */
const newest = Effect.fnUntraced(function* (
  server: Server["id"],
  count: number,
  timed: boolean,
  call: typeof ask = ask
) {
  const lines: Array<TimedLine> = []
  const per_page = String(Math.min(PAGE, Math.max(count, 1)))
  for (let page = 1; lines.length < count; page++) {
    const { data, times } = yield* call((muster) =>
      storedLines(muster, server, { page: String(page), per_page, ...(timed && { include: "times" }) })
    )
    lines.unshift(...data.map((text, line) => ({ text, at: times?.[line] ?? null })))
    if (data.length < Number(per_page)) break
  }
  return count === 0 ? [] : lines.slice(-count)
})

/** Prints the stored lines and then, without a gap, those that follow. Ends when the server is deleted. */
const follow = Effect.fnUntraced(function* (
  server: Server["id"],
  options: { readonly tail: number; readonly timestamps: boolean },
  print: (line: TimedLine) => Effect.Effect<void>
) {
  // Opened before the stored lines are read: a line that is written in between is in one of both.
  const { timedLines } = yield* ask((muster) => muster.console(server))
  // Lines that arrive before the stored ones are printed.
  const early: Array<TimedLine> = []
  let isReady = false
  const streaming = yield* Effect.forkChild(
    Stream.runForEach(
      askStream(() => timedLines),
      (line) =>
        isReady
          ? print(line)
          : Effect.sync(() => {
              early.push(line)
            })
    )
  )
  const stored = yield* newest(server, options.tail, options.timestamps)
  // The stored ones have no ANSI sequences.
  const known = overlap(
    stored.map(({ text }) => text),
    early.map(({ text }) => stripAnsi(text))
  )
  yield* Effect.forEach([...stored, ...early.slice(known)], print, { discard: true })
  isReady = true
  yield* Fiber.join(streaming)
}, Effect.scoped)

/** The time between two reads of a follower whose key may not open consoles. */
const POLL = "2 seconds"

/** Prints the stored lines, and then what follows in them. Ends when the server is deleted. */
const poll = Effect.fnUntraced(function* (
  server: Server["id"],
  options: { readonly tail: number; readonly timestamps: boolean },
  print: (line: TimedLine) => Effect.Effect<void>
) {
  const read = newest(server, PAGE, options.timestamps, askAgain)
  let had = yield* newest(server, Math.max(PAGE, options.tail), options.timestamps)
  yield* Effect.forEach(options.tail === 0 ? [] : had.slice(-options.tail), print, { discard: true })
  const once = Effect.gen(function* () {
    yield* Effect.sleep(POLL)
    const stored = yield* read
    const { missing } = missingLines(
      had.map(({ text }) => text),
      stored.map(({ text }) => text)
    )
    yield* Effect.forEach(missing.length === 0 ? [] : stored.slice(-missing.length), print, { discard: true })
    had = stored
  })
  yield* Effect.forever(once).pipe(ifMissing(() => Effect.void))
})

const mayOpenConsoles = Effect.map(
  ask((muster) => muster.keys.self()),
  ({ rights }) => rights.includes("console")
)

export const logs = command("logs", {
  description:
    "Print the console of a server. With -f, lines are printed as the server writes them, with their colours and without other control sequences. After a break of the connection, the lines of the meantime follow, the newest 1,000; `[lines are missing here]` stands for earlier ones, which `--tail` prints.",
  examples: {
    "muster servers logs survival-1 -f --tail 50 --timestamps":
      "The last 50 lines, then each new line with its time",
    "muster servers logs k7f --tail 1000 > console.txt": "Into a file"
  },
  input: {
    server: serverArgument,
    follow: followFlag("Print new lines until Ctrl-C, or until the server is deleted"),
    tail: Flag.Int("tail").pipe(
      Flag.withAlias("n"),
      Flag.withDescription("How many of the newest lines; default 100"),
      Flag.filter(
        (count) => count >= 0 && count <= 1_000_000,
        () => "a whole number from 0 to 1000000"
      ),
      Flag.withDefault(100)
    ),
    timestamps: switchFlag(
      "timestamps",
      "Begin each line with its time; `-`: the line was written while the daemon was down"
    ).pipe(Flag.withAlias("t"))
  },
  *run({ follow: follows, server, tail, timestamps }) {
    const { id } = yield* serverNamed(server)
    const print = ({ at, text }: TimedLine) => Console.log(timestamps ? `${at ?? NO_TIME} ${text}` : text)
    if (follows) {
      const followed = (yield* mayOpenConsoles) ? follow : poll
      return yield* following(followed(id, { tail, timestamps }, print))
    }
    const lines = yield* newest(id, tail, timestamps)
    yield* Effect.forEach(lines, print, { discard: true })
    if (lines.length === 0 && tail > 0)
      yield* note(
        `The console has no lines: \`muster servers show ${id}\` says why if the server has not started.`
      )
  }
})

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
    (cause) => CommandError.failed(`cannot read standard input: ${cause}`)
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

import { closeSync, constants, openSync, writeSync } from "node:fs"
import { Effect, Schedule, Semaphore } from "effect"
import { errorCode } from "../disk/fsio.ts"
import { ConsoleInputFailed } from "./Runtime.ts"

/** How long a full pipe is waited for: 8 times 50 ms. */
const patience = Schedule.max([Schedule.spaced(50), Schedule.recurs(8)])

const failed = (cause: unknown) => {
  const full = errorCode(cause) === "EAGAIN"
  const message = full ? "the server does not read its console" : "the console is closed"
  return new ConsoleInputFailed({ why: full ? "full" : "closed", message })
}

/** Writes lines to a pipe that a server reads, one at a time, and never blocks on it. */
export const makeConsoleInput = Effect.fnUntraced(function* (path: string) {
  const lock = yield* Semaphore.make(1)
  // A line of which only a part went in: the next one must not become its end.
  let torn = false

  const write = (line: string) => {
    const data = Buffer.from(`${torn ? "\n" : ""}${line}\n`)
    let sent = 0
    const push = (fd: number) =>
      Effect.try({
        try: () => {
          while (sent < data.length) sent += writeSync(fd, data, sent)
          torn = false
        },
        catch: (cause) => {
          torn ||= sent > 0
          return failed(cause)
        }
      })
    const open = Effect.try({
      try: () => openSync(path, constants.O_WRONLY | constants.O_NONBLOCK),
      catch: failed
    })
    return Effect.scoped(
      Effect.acquireRelease(open, (fd) => Effect.sync(() => closeSync(fd))).pipe(
        Effect.flatMap((fd) =>
          Effect.retry(push(fd), { schedule: patience, while: (error) => error.why === "full" })
        )
      )
    )
  }
  return (line: string) => lock.withPermit(Effect.suspend(() => write(line)))
})

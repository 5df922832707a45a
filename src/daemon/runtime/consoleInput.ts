import { closeSync, constants, openSync, writeSync } from "node:fs"
import { Effect, Schedule, Semaphore } from "effect"
import { errorCode } from "../disk/fsio.ts"
import { ConsoleInputFailed } from "./Runtime.ts"

/** The wait for a full pipe: 8 times 50 ms. */
const fullPipeRetry = Schedule.max([Schedule.spaced(50), Schedule.recurs(8)])

const failed = (cause: unknown, isPartial = false) => {
  const full = errorCode(cause) === "EAGAIN"
  const message = full ? "the server does not read its console" : "the console is closed"
  return new ConsoleInputFailed({ why: full ? "full" : "closed", message, isPartial })
}

/** Writes texts to the pipe that a server reads, one at a time, without blocking. */
export const makeConsoleInput = Effect.fnUntraced(function* (path: string) {
  const lock = yield* Semaphore.make(1)
  // Whether a text was written in part; the next one must not continue its line.
  let isPartial = false

  const write = (text: string) => {
    const before = isPartial ? "\n" : ""
    const data = Buffer.from(`${before}${text}`)
    let sent = 0
    const push = (fd: number) =>
      Effect.try({
        try: () => {
          while (sent < data.length) sent += writeSync(fd, data, sent)
          isPartial = false
        },
        catch: (cause) => {
          isPartial ||= sent > 0
          return failed(cause, sent > before.length)
        }
      })
    const open = Effect.try({
      try: () => openSync(path, constants.O_WRONLY | constants.O_NONBLOCK),
      catch: (cause) => failed(cause)
    })
    return Effect.scoped(
      Effect.acquireRelease(open, (fd) => Effect.sync(() => closeSync(fd))).pipe(
        Effect.flatMap((fd) =>
          Effect.retry(push(fd), { schedule: fullPipeRetry, while: (error) => error.why === "full" })
        )
      )
    )
  }
  return (text: string) => lock.withPermit(Effect.suspend(() => write(text)))
})

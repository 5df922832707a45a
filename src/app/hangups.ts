import { closeSync, openSync } from "node:fs"
import { Effect, Queue } from "effect"
import type { LiveFiles } from "./liveFiles.ts"

/** Whether the terminal of this process is gone: SIGHUP then means the end, not a reload. */
const hasLostTerminal = (): boolean => {
  try {
    closeSync(openSync("/dev/tty", "r"))
    return false
  } catch {
    return true
  }
}

/** The SIGHUPs until the scope closes; several at once are one. A closed terminal ends the process gracefully. */
export const hangups = Effect.gen(function* () {
  const queue = yield* Queue.sliding<void>(1)
  const interactive = process.stdin.isTTY === true && process.stdout.isTTY === true
  const onHangup = () => {
    if (interactive && hasLostTerminal()) process.kill(process.pid, "SIGTERM")
    else Queue.offerUnsafe(queue, undefined)
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", onHangup)),
    () => Effect.sync(() => process.off("SIGHUP", onHangup))
  )
  return queue
})

export interface Part {
  readonly name: string
  readonly reload: Effect.Effect<boolean, { readonly message: string; readonly detail?: string }>
}

/** Returns the certificates as parts that SIGHUP reloads. */
export const certificates = (
  ...files: ReadonlyArray<Pick<LiveFiles<unknown>, "names" | "reload"> | undefined>
) =>
  files.flatMap(
    (file): ReadonlyArray<Part> => (file === undefined ? [] : [{ name: file.names, reload: file.reload }])
  )

/** Reloads the parts in order at each SIGHUP, and logs the result in one line. */
export const reloadOnHangup = (queue: Queue.Dequeue<void>, parts: ReadonlyArray<Part>) =>
  Effect.gen(function* () {
    yield* Queue.take(queue)
    let failed = false
    const results = yield* Effect.forEach(parts, ({ name, reload }) =>
      reload.pipe(
        Effect.map((changed) => `${name} ${changed ? "reloaded" : "unchanged"}`),
        Effect.catch(({ detail, message }) => {
          failed = true
          return Effect.succeed(`${name} not reloaded (${(detail ?? message).split("\n").join("; ")})`)
        })
      )
    )
    const line = `SIGHUP: ${results.join(", ") || "nothing to reload"}`
    yield* failed ? Effect.logWarning(line) : Effect.logInfo(line)
  }).pipe(Effect.forever, Effect.forkScoped)

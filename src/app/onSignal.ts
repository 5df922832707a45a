import { Effect } from "effect"

/** npm forwards a signal shortly after the terminal sent it. */
const SAME_KEYSTROKE_MILLIS = 500
const codes = { SIGINT: 130, SIGTERM: 143 } as const

/** Ends the process at the second SIGINT or SIGTERM. The first one starts the graceful stop elsewhere. */
export const endOnSecondSignal = Effect.acquireRelease(
  Effect.sync(() => {
    let first: number | undefined
    const handlerOf = (signal: keyof typeof codes) => () => {
      first ??= performance.now()
      if (performance.now() - first > SAME_KEYSTROKE_MILLIS) process.exit(codes[signal])
    }
    const handlers = [
      ["SIGINT", handlerOf("SIGINT")],
      ["SIGTERM", handlerOf("SIGTERM")]
    ] as const
    for (const [signal, handler] of handlers) process.on(signal, handler)
    return handlers
  }),
  (handlers) =>
    Effect.sync(() => {
      for (const [signal, handler] of handlers) process.off(signal, handler)
    })
)

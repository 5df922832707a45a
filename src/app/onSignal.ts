import { Effect } from "effect"

/** A signal that npm passes on comes a moment after the one that the terminal has sent. */
const SAME_KEYSTROKE_MILLIS = 500
const codes = { SIGINT: 130, SIGTERM: 143 } as const

/** The first SIGINT or SIGTERM is a wish, which others hear; a second one ends the process at once. */
export const endOnSecondSignal = Effect.acquireRelease(
  Effect.sync(() => {
    let first: number | undefined
    const hear = (signal: keyof typeof codes) => () => {
      first ??= performance.now()
      if (performance.now() - first > SAME_KEYSTROKE_MILLIS) process.exit(codes[signal])
    }
    const handlers = [
      ["SIGINT", hear("SIGINT")],
      ["SIGTERM", hear("SIGTERM")]
    ] as const
    for (const [signal, handler] of handlers) process.on(signal, handler)
    return handlers
  }),
  (handlers) =>
    Effect.sync(() => {
      for (const [signal, handler] of handlers) process.off(signal, handler)
    })
)

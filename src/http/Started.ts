import { Context, Effect } from "effect"

/**
 * The last part of the start, which goes on while the server listens: requests wait for its end, except on routes with
 * `AnswersEarly`. Default: the server starts once everything else has.
 */
export const Started = Context.Reference<{
  readonly isDone: () => boolean
  /** Waits for the end, also for that of a failed start. */
  readonly done: Effect.Effect<void>
}>("muster/http/Started", { defaultValue: () => ({ isDone: () => true, done: Effect.void }) })

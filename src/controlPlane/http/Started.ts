import { Context, Effect } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"

/**
 * The last part of the start, which goes on while the server listens: requests wait for its end, except on routes with
 * `AnswersEarly`. Default: the server starts once everything else has.
 */
export const Started = Context.Reference<{
  readonly isDone: () => boolean
  /** Waits for the end, also for that of a failed start. @error Unavailable the start takes long */
  readonly done: Effect.Effect<void, Unavailable>
}>("muster/http/Started", { defaultValue: () => ({ isDone: () => true, done: Effect.void }) })

import { Context, Effect } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"

/** While the server listens, requests wait for `done`, except on routes with `AnswersEarly`. */
export const Started = Context.Reference<{
  readonly isDone: () => boolean
  /** Waits for the end, also for that of a failed start. @error Unavailable the start takes long */
  readonly done: Effect.Effect<void, Unavailable>
}>("muster/http/Started", { defaultValue: () => ({ isDone: () => true, done: Effect.void }) })

import { Context, Effect } from "effect"

/** Whether the answer to a statement is not awaited. */
export const Unanswered = Context.Reference<boolean>("muster/store/Unanswered", { defaultValue: () => false })

/** Runs statements without data in their results, and may not await them: a failure surfaces at the commit. */
export const pipelined = <A, E, R>(statements: Effect.Effect<A, E, R>): Effect.Effect<void, E, R> =>
  Effect.asVoid(Effect.provideService(statements, Unanswered, true))

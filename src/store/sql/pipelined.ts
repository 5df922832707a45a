import { Context, Effect } from "effect"

/** Whether a statement's answer is not waited for. */
export const Unanswered = Context.Reference<boolean>("muster/store/Unanswered", { defaultValue: () => false })

/**
 * Statements of a transaction whose answers say nothing but that they have succeeded: where the database can take
 * them so, they go out with what comes next, and their failure is the commit's.
 */
export const pipelined = <A, E, R>(statements: Effect.Effect<A, E, R>): Effect.Effect<void, E, R> =>
  Effect.asVoid(Effect.provideService(statements, Unanswered, true))

import { Context, type Effect } from "effect"
import type { Change } from "../../domain/Journal.ts"

/** The write transaction of the current mutation. */
export class Transaction extends Context.Service<
  Transaction,
  {
    /**
     * Adds a change to the journal, in the same transaction as the change itself.
     *
     * @param blueprint_id of the server, if the change is about one
     */
    append(change: Change, blueprint_id?: string): Effect.Effect<void>
  }
>()("muster/store/Transaction") {}

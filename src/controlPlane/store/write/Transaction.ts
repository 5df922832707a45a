import { Context, type Effect } from "effect"
import type { Change, ChangedServer } from "../../../contract/domain/Journal.ts"

/** The write transaction of the current mutation. */
export class Transaction extends Context.Service<
  Transaction,
  {
    /**
     * Adds a change to the journal, in the same transaction as the change itself.
     *
     * @param server the server, if the change is about one
     */
    append(change: Change, server?: ChangedServer): Effect.Effect<void>
  }
>()("muster/store/Transaction") {}

import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql"
import type { Unavailable } from "../domain/errors.ts"
import type { Change } from "../domain/Journal.ts"

/** The write transaction that the current mutation is part of. */
export class Transaction extends Context.Service<
  Transaction,
  {
    /** Adds a change to the journal, in the same transaction as the change itself. */
    append(change: Change, blueprint_id: string): Effect.Effect<void>
  }
>()("muster/store/Transaction") {}

/**
 * All writes of the control plane. Mutations that wait when a transaction begins share its commit (group commit);
 * each has a savepoint of its own, so a mutation that fails undoes itself alone.
 */
export class Store extends Context.Service<
  Store,
  {
    /**
     * Runs `mutation` in a write transaction and succeeds once it is durable and every follower of the journal has
     * seen its changes (read your own writes). Mutations run one after another and do nothing but SQL.
     *
     * @error Unavailable the database cannot be reached; nothing was changed
     */
    write<A, E>(
      mutation: Effect.Effect<A, E | SqlError.SqlError, Transaction>
    ): Effect.Effect<A, E | Unavailable>
    /** Runs a read outside a write transaction. */
    read<A, E>(query: Effect.Effect<A, E | SqlError.SqlError>): Effect.Effect<A, E | Unavailable>
    /** Fails when the database does not answer: readiness asks it. */
    readonly ping: Effect.Effect<void, Unavailable>
  }
>()("muster/store/Store") {}

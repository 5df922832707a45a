import { Context, type Effect, type Option } from "effect"
import type { SqlError } from "effect/sql"
import type { InstallState } from "../domain/InstallState.ts"
import type { ServerRecord } from "../domain/Server.ts"
import type { ServerStatus } from "../domain/ServerStatus.ts"
import type { Transaction } from "./Store.ts"

type Write<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

/** Why a record could not be inserted: somebody else holds one of its ports. */
export type InsertOutcome = "inserted" | "port-taken"

/** Records of servers and the ports they hold. Reads decode; rows that do not decode are defects. */
export class ServerRepo extends Context.Service<
  ServerRepo,
  {
    /** Inserts the record and its ports; a port that is held already leaves nothing behind. */
    insert(record: ServerRecord): Write<InsertOutcome>
    /** The record, locked until the transaction ends. */
    lock(id: string): Write<Option.Option<ServerRecord>>
    setStatus(id: string, status: ServerStatus): Write<void>
    setInstall(id: string, install: InstallState): Write<void>
    setStartPending(id: string, pending: boolean): Write<void>
    setSequence(id: string, sequence: number): Write<void>
    /** Deletes the record and frees its ports. */
    remove(id: string): Write<void>
    find(ids: ReadonlyArray<string>): Effect.Effect<ReadonlyArray<ServerRecord>, SqlError.SqlError>
    /** Every record, by id. */
    readonly all: Effect.Effect<ReadonlyArray<ServerRecord>, SqlError.SqlError>
  }
>()("muster/store/ServerRepo") {}

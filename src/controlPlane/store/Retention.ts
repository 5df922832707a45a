import { Clock, Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { mayUseReserve } from "./disk/DatabaseDisk.ts"
import { journalTable } from "./journal/journalTable.ts"
import { Leadership } from "./Leadership.ts"
import { AuditRepo } from "./repos/AuditRepo.ts"
import { DeletedServerRepo } from "./repos/DeletedServerRepo.ts"
import { IdempotencyRepo } from "./repos/IdempotencyRepo.ts"
import { OperationRepo } from "./repos/OperationRepo.ts"
import { ServerRepo } from "./repos/ServerRepo.ts"
import { SftpRepo } from "./repos/SftpRepo.ts"
import { TicketRepo } from "./repos/TicketRepo.ts"
import { Store } from "./Store.ts"

export interface RetentionOptions {
  /** Age of entries of the journal, responses to idempotent requests, and ended operations. Default: 24 hours. */
  readonly maxAge?: Duration.Input
  /** Bound of the journal's entries. Default: 1,000,000. */
  readonly maxEntries?: number
  /** Age at which entries of the audit log are deleted. Default: 90 days. */
  readonly auditAge?: Duration.Input
  /** Bound of the audit log in bytes. Default: 1 GiB. */
  readonly auditBytes?: number
  /** Interval of the rounds; the first round starts after it. Default: 1 minute. */
  readonly interval?: Duration.Input
}

/** Entries that one mutation deletes, so that other writes run in between. */
const CHUNK = 5_000
const DEFINITIONS = 1_000

/**
 * Bounds the journal, the audit log, idempotency responses, tickets, passwords, operations and records of deleted servers, and
 * deletes definitions that no server has, on the leader (spec 3).
 */
export const Retention = {
  layer: (options: RetentionOptions = {}) =>
    Layer.effectDiscard(
      Effect.gen(function* () {
        const leadership = yield* Leadership
        const store = yield* Store
        const audit = yield* AuditRepo
        const deleted = yield* DeletedServerRepo
        const idempotency = yield* IdempotencyRepo
        const operations = yield* OperationRepo
        const servers = yield* ServerRepo
        const sftp = yield* SftpRepo
        const tickets = yield* TicketRepo
        const table = journalTable(yield* SqlClient.SqlClient)
        const maxAge = Duration.toMillis(options.maxAge ?? "24 hours")
        const auditAge = Duration.toMillis(options.auditAge ?? "90 days")
        const auditBytes = options.auditBytes ?? 2 ** 30
        const maxEntries = options.maxEntries ?? 1_000_000

        const pruneJournal = Effect.fnUntraced(function* (notBefore: number) {
          const until = yield* store.read(table.expired(notBefore, maxEntries))
          const { oldest } = yield* store.read(table.bounds)
          for (let upTo = Math.min(oldest + CHUNK - 1, until); oldest <= upTo; upTo += CHUNK) {
            yield* store.write(table.deleteUpTo(Math.min(upTo, until)))
            if (upTo >= until) break
          }
        })

        const pruneAudit = (notBefore: number) =>
          store
            .write(audit.prune({ notBefore, maxBytes: auditBytes }, CHUNK))
            .pipe(Effect.repeat({ until: (pruned) => pruned === 0 }))

        const pruneOperations = (notBefore: number) =>
          store
            .write(operations.prune(new Date(notBefore).toISOString()))
            .pipe(Effect.repeat({ until: (pruned) => pruned === 0 }))

        let looked = ""
        const pruneDefinitions = Effect.gen(function* () {
          const { hashes, last } = yield* store.read(servers.unusedDefinitions(looked, DEFINITIONS))
          if (hashes.length > 0) yield* store.write(servers.deleteUnusedDefinitions(hashes))
          looked = last
        })

        const round = Effect.gen(function* () {
          if (!(yield* leadership.isLeader)) return
          const now = yield* Clock.currentTimeMillis
          const notBefore = now - maxAge
          yield* pruneJournal(notBefore)
          yield* pruneAudit(now - auditAge)
          yield* store.write(Effect.andThen(idempotency.prune(notBefore), tickets.prune))
          yield* store.write(sftp.prunePasswords)
          yield* store.write(deleted.prune(now))
          yield* pruneOperations(notBefore)
          yield* pruneDefinitions
        }).pipe(
          mayUseReserve,
          Effect.catchCause((cause) => Effect.logWarning("old journal entries were not removed", cause))
        )

        const interval = options.interval ?? "1 minute"
        yield* round.pipe(Effect.delay(interval), Effect.repeat(Schedule.forever), Effect.forkScoped)
      })
    )
}

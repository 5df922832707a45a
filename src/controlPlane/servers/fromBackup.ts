import { Effect } from "effect"
import type { RestoreWork } from "../../contract/domain/Backup.ts"
import { Conflict, NotFound } from "../../contract/domain/errors.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { checkRightFor, currentRestriction } from "../http/Principal.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { newOperation } from "../store/repos/OperationRepo.ts"
import { Store } from "../store/Store.ts"
import type { CreateRequest } from "./creation.ts"
import { ServerIndex } from "./list/ServerIndex.ts"

/**
 * Returns a function that adds to a creation what its backup has of the server, where the request says nothing
 * (spec 12.7).
 * @error Forbidden the key may not restore
 * @error NotFound  there is no such backup, or the key does not see it
 * @error Conflict  the backup is not done
 */
export const makeFromBackup = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* BackupRepo
  const store = yield* Store
  return Effect.fnUntraced(function* (request: CreateRequest) {
    const { from_backup } = request
    if (from_backup === undefined) return request
    yield* checkRightFor("from_backup", "restore")
    const within = yield* currentRestriction
    const backup = yield* store.read(repo.find(from_backup))
    if (backup === undefined || !index.isWithin(backup.server_id, within))
      return yield* NotFound.backup(from_backup)
    if (backup.state !== "done") {
      return yield* new Conflict({
        detail: `backup is ${backup.state}: ${from_backup}`,
        hint: "Choose a backup that is done."
      })
    }
    const name = request.name ?? backup.server_name ?? undefined
    return {
      ...request,
      overrides: { ...backup.overrides, ...request.overrides },
      labels: request.labels ?? backup.server_labels,
      ...(name === undefined ? {} : { name })
    } satisfies CreateRequest
  })
})

/** Returns the operation that restores the backup of a creation once the server is installed, and then starts it, or drills. */
export const restoreOf = (
  { created_at, created_by, id }: ServerRecord,
  backup_id: string,
  { drill, start }: Pick<CreateRequest, "drill"> & { readonly start: boolean }
): OperationRecord => {
  const request: RestoreWork = { backup_id, safety: null, start }
  return newOperation({
    kind: drill ? "backup.drill" : "backup.restore",
    server_id: id,
    request,
    created_by: created_by ?? null,
    created_at
  })
}

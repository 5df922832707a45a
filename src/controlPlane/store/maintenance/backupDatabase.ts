import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs"
import { dirname } from "node:path"
import { Data, Effect } from "effect"
import type { SqliteUrl } from "../../../shared/config/DatabaseUrl.ts"
import { mustExist } from "../layers/layerDatabase.ts"
import { openDatabase } from "../sqlite/database.ts"

/** There is no backup; an existing file is untouched. */
class BackupFailed extends Data.TaggedError("BackupFailed")<{
  readonly message: string
  readonly cause?: unknown
}> {}

const syncPath = (path: string): void => {
  const descriptor = openSync(path, "r")
  fsyncSync(descriptor)
  closeSync(descriptor)
}

/**
 * Writes a consistent copy of a SQLite database in use to a new file (mode 0600), checked before it gets its name.
 * @error BackupFailed the file exists, cannot be written, or is damaged
 */
export const backupDatabase = Effect.fn("backupDatabase")(function* (from: SqliteUrl, file: string) {
  yield* mustExist(from)
  if (existsSync(file)) {
    return yield* new BackupFailed({ message: `${file} exists already: name a new file` })
  }
  const partial = `${file}.partial`
  const attempt = <A>(run: () => A) =>
    Effect.try({
      try: run,
      catch: (cause) =>
        new BackupFailed({
          message: `the backup ${file} cannot be written: ${cause instanceof Error ? cause.message : cause}`,
          cause
        })
    })
  yield* Effect.gen(function* () {
    // Made here, so that no other user can read it at any moment.
    yield* attempt(() => {
      rmSync(partial, { force: true })
      closeSync(openSync(partial, "wx", 0o600))
    })
    yield* Effect.scoped(
      Effect.flatMap(
        openDatabase({ filename: from.filename, busyTimeoutMillis: 5_000, setup: "PRAGMA query_only = OFF" }),
        (database) =>
          attempt(() => {
            database.all("VACUUM INTO ?", [partial])
          })
      )
    )
    const found = yield* Effect.scoped(
      Effect.flatMap(
        openDatabase({ filename: partial, busyTimeoutMillis: 0, setup: "PRAGMA query_only = ON" }),
        (database) => attempt(() => JSON.stringify(database.all("PRAGMA integrity_check")))
      )
    )
    if (found !== '[{"integrity_check":"ok"}]') {
      return yield* new BackupFailed({ message: `the backup is damaged: ${found}` })
    }
    yield* attempt(() => {
      syncPath(partial)
      renameSync(partial, file)
      syncPath(dirname(file))
    })
  }).pipe(Effect.ensuring(Effect.sync(() => rmSync(partial, { force: true }))))
})

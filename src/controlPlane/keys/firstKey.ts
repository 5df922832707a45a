import { Data, Effect, FileSystem, Path, type PlatformError, Redacted } from "effect"
import { ADMIN_KEY_FILE } from "../../contract/domain/Key.ts"
import { KeyRepo } from "../store/repos/KeyRepo.ts"
import { Store } from "../store/Store.ts"
import { generateKey, isWellFormed, makeRecord } from "./keyFormat.ts"

/**
 * The result of {@link ensureFirstKey}; `message` is for the operator.
 *
 * - `NotNeeded` there is an admin key, or one from outside; `path`: the file of the first start, if it is still there
 * - `Made`      a key was made and written to `path`
 * - `Adopted`   `path` had a key that the store did not know: it is valid now
 */
export type FirstKey =
  | { readonly _tag: "NotNeeded"; readonly path?: string }
  | { readonly _tag: "Made" | "Adopted"; readonly path: string; readonly message: string }

export class FirstKeyError extends Data.TaggedError("FirstKeyError")<{
  readonly message: string
  readonly cause?: unknown
}> {}

/**
 * Makes an AppAdmin key in `<data>/admin.key` (mode 0600; spec 6.1), if there is neither an outside key nor an admin
 * key, revoked or not. The file is written first and never overwritten; a key in it without a record becomes valid.
 */
export const ensureFirstKey = Effect.fn("ensureFirstKey")(function* (options: {
  readonly dataDir: string
  readonly adminKey?: Redacted.Redacted<string>
}) {
  if (options.adminKey !== undefined && Redacted.value(options.adminKey) !== "") return notNeeded
  const store = yield* Store
  const repo = yield* KeyRepo
  const path = (yield* Path.Path).join(options.dataDir, ADMIN_KEY_FILE)
  if ((yield* store.read(repo.all)).some(({ scope }) => scope === "AppAdmin")) {
    const left = yield* Effect.orElseSucceed((yield* FileSystem.FileSystem).exists(path), () => false)
    return left ? ({ _tag: "NotNeeded", path } satisfies FirstKey) : notNeeded
  }
  const fresh = yield* generateKey
  const made = yield* Effect.mapError(writeNewFile(path, Redacted.value(fresh)), cannotWrite(path))
  const key = made ? fresh : yield* readKey(path)
  const record = yield* makeRecord(key, { name: "first key", scope: "AppAdmin" })
  yield* store.write(repo.insert(record))
  const result: FirstKey = made
    ? { _tag: "Made", path, message: `there was no API key for administration: made one, it is in ${path}` }
    : { _tag: "Adopted", path, message: `the API key for administration is the one in ${path}` }
  return result
})

const notNeeded: FirstKey = { _tag: "NotNeeded" }

const readKey = Effect.fnUntraced(function* (path: string) {
  const fs = yield* FileSystem.FileSystem
  const text = (yield* Effect.mapError(fs.readFileString(path), cannotRead(path))).trim()
  if (!isWellFormed(text)) {
    return yield* new FirstKeyError({
      message: `${path} has no API key: move it away and start again to make a new one`
    })
  }
  return Redacted.make(text)
})

const cannotWrite = (path: string) => (cause: PlatformError.PlatformError) =>
  new FirstKeyError({ message: `the first API key cannot be written to ${path}: ${cause.message}`, cause })

const cannotRead = (path: string) => (cause: PlatformError.PlatformError) =>
  new FirstKeyError({ message: `the first API key cannot be read from ${path}: ${cause.message}`, cause })

const isAlreadyThere = (error: PlatformError.PlatformError): boolean => error.reason._tag === "AlreadyExists"

/** Writes one line to a new file of mode 0600, durably or not at all. Returns false if the file exists. */
export const writeNewFile = Effect.fnUntraced(function* (path: string, line: string) {
  const fs = yield* FileSystem.FileSystem
  const { basename, dirname } = yield* Path.Path
  // Made with mode 0600 in the same folder; its name is made by a link, which fails if the name exists.
  const draft = yield* fs.makeTempFileScoped({ directory: dirname(path), prefix: `.${basename(path)}-` })
  yield* fs.chmod(draft, 0o600)
  const file = yield* fs.open(draft, { flag: "r+" })
  yield* file.writeAll(new TextEncoder().encode(`${line}\n`))
  yield* file.sync
  const made = yield* Effect.as(fs.link(draft, path), true).pipe(
    Effect.catchIf(isAlreadyThere, () => Effect.succeed(false))
  )
  // A name is durable once its folder is.
  yield* Effect.flatMap(fs.open(dirname(path), { flag: "r" }), (folder) => folder.sync)
  return made
}, Effect.scoped)

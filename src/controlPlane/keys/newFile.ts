import { Effect, FileSystem, Path, type PlatformError } from "effect"

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

/** The services that the command line knows by name, with their keys: `muster context`. */
import {
  chmodSync,
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { Config, Effect, Schedule, Schema } from "effect"
import { CommandError, whyNoFile } from "./failures.ts"

const Context = Schema.Struct({ url: Schema.String, key: Schema.String })
export type Context = typeof Context.Type

/** The file of contexts. `current`: the one that commands use. */
const Contexts = Schema.Struct({
  current: Schema.optionalKey(Schema.String),
  contexts: Schema.Record(Schema.String, Context)
})
export type Contexts = typeof Contexts.Type

const none: Contexts = { contexts: {} }

const OTHERS = 0o077

const failed = (message: string) => new CommandError({ status: "failed", message })

const contextsFile = Config.String("XDG_CONFIG_HOME").pipe(
  Config.withDefault(""),
  Effect.orElseSucceed(() => ""),
  Effect.map((folder) => join(folder === "" ? join(homedir(), ".config") : folder, "muster", "contexts.json"))
)

const isMissing = (cause: unknown): boolean =>
  cause instanceof Error && "code" in cause && (cause.code === "ENOENT" || cause.code === "ENOTDIR")

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Contexts))

/**
 * Reads the contexts; a missing file has none.
 * @error CommandError the file is unreadable, invalid or open to others
 */
export const readContexts = Effect.gen(function* () {
  const file = yield* contextsFile
  const text = yield* Effect.try({
    try: () => ({ mode: statSync(file).mode, text: readFileSync(file, "utf8") }),
    catch: (cause) => cause
  }).pipe(
    Effect.catch((cause) =>
      isMissing(cause)
        ? Effect.succeed(undefined)
        : Effect.fail(failed(`cannot read ${file}: ${whyNoFile(cause)}`))
    )
  )
  if (text === undefined) return none
  if ((text.mode & OTHERS) !== 0) {
    return yield* failed(`others can read the keys in ${file}: run \`chmod 600 ${file}\``)
  }
  return yield* Effect.mapError(decode(text.text), () =>
    failed(`${file} is not a file of contexts: move it away, and add them again with \`muster context add\``)
  )
})

const writeContexts = (file: string, contexts: Contexts) => {
  const draft = `${file}.${process.pid}`
  return Effect.try({
    try: () => {
      writeFileSync(draft, `${JSON.stringify(contexts, null, 2)}\n`, { mode: 0o600 })
      chmodSync(draft, 0o600)
      renameSync(draft, file)
    },
    catch: (cause) => failed(`cannot write ${file}: ${whyNoFile(cause)}`)
  })
}

/** Milliseconds after which a lock is that of a command that has ended: a change takes a few. */
const STALE_MILLIS = 10_000

const isTaken = (cause: unknown): boolean =>
  cause instanceof Error && "code" in cause && cause.code === "EEXIST"

/** Creates a file that only one command can create; returns false if it exists. */
const takeLock = (lock: string) =>
  Effect.try({
    try: () => {
      mkdirSync(dirname(lock), { recursive: true, mode: 0o700 })
      closeSync(openSync(lock, "wx", 0o600))
      return true
    },
    catch: (cause) => cause
  }).pipe(
    Effect.catchIf(isTaken, () =>
      Effect.sync(() => {
        const taken = statSync(lock, { throwIfNoEntry: false })
        if (taken !== undefined && Date.now() - taken.mtimeMs > STALE_MILLIS) rmSync(lock, { force: true })
        return false
      })
    ),
    Effect.mapError((cause) => failed(`cannot write ${lock}: ${whyNoFile(cause)}`))
  )

/** Changes the contexts under a lock. @error CommandError as {@link readContexts}, or the file cannot be written */
export const changeContexts = Effect.fnUntraced(function* <A>(
  change: (before: Contexts) => Effect.Effect<readonly [contexts: Contexts, result: A], CommandError>
) {
  const file = yield* contextsFile
  const lock = `${file}.lock`
  return yield* Effect.acquireUseRelease(
    Effect.repeat(takeLock(lock), { until: (isOurs) => isOurs, schedule: Schedule.spaced("10 millis") }),
    () =>
      Effect.gen(function* () {
        const [contexts, result] = yield* change(yield* readContexts)
        yield* writeContexts(file, contexts)
        return result
      }),
    () => Effect.sync(() => rmSync(lock, { force: true }))
  )
})

/** The context that commands use, if one is chosen. */
export const currentContext = Effect.gen(function* () {
  const { contexts, current } = yield* readContexts
  if (current === undefined) return undefined
  const context = Object.hasOwn(contexts, current) ? contexts[current] : undefined
  if (context === undefined) {
    return yield* failed(`there is no context ${current}: choose another with \`muster context use\``)
  }
  return { name: current, ...context }
})

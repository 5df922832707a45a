/** The contexts of `muster context`: services by name, with their keys. Chooses the service that a command calls. */
import {
  chmodSync,
  closeSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { homedir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { Config, Context, Effect, Redacted, Schedule, Schema } from "effect"
import { LOCAL_SOCKET, whyNoSocket } from "../../contract/domain/transport.ts"
import { loadCommandSettings } from "../../shared/config/command.ts"
import { CommandError, whyNoFile } from "./failures.ts"

/** The file of contexts. `current`: the one that commands use. */
const Contexts = Schema.Struct({
  current: Schema.optionalKey(Schema.String),
  contexts: Schema.Record(Schema.String, Schema.Struct({ url: Schema.String, key: Schema.String }))
})
type Contexts = typeof Contexts.Type

const none: Contexts = { contexts: {} }

const OTHERS = 0o077

/** The folder in which commands keep files for the user. */
export const configFolder = Config.String("XDG_CONFIG_HOME").pipe(
  Config.withDefault(""),
  Effect.orElseSucceed(() => ""),
  Effect.map((folder) => join(folder === "" ? join(homedir(), ".config") : folder, "muster"))
)

const contextsFile = Effect.map(configFolder, (folder) => join(folder, "contexts.json"))

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
        : Effect.fail(CommandError.failed(`cannot read ${file}: ${whyNoFile(cause)}`))
    )
  )
  if (text === undefined) return none
  if ((text.mode & OTHERS) !== 0) {
    return yield* CommandError.failed(`others can read the keys in ${file}: run \`chmod 600 ${file}\``)
  }
  return yield* Effect.mapError(decode(text.text), () =>
    CommandError.failed(
      `${file} is not a file of contexts: move it away, and add them again with \`muster context add\``
    )
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
    catch: (cause) => CommandError.failed(`cannot write ${file}: ${whyNoFile(cause)}`)
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
    Effect.mapError((cause) => CommandError.failed(`cannot write ${lock}: ${whyNoFile(cause)}`))
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
const currentContext = Effect.gen(function* () {
  const { contexts, current } = yield* readContexts
  if (current === undefined) return undefined
  const context = Object.hasOwn(contexts, current) ? contexts[current] : undefined
  if (context === undefined) {
    return yield* CommandError.failed(
      `there is no context ${current}: choose another with \`muster context use\``
    )
  }
  return { name: current, ...context }
})

/** Returns the first part of a path that another user than this one and root owns, or that all users may replace. */
const foreignPart = (path: string): string | undefined => {
  const parent = dirname(path)
  const above = parent === path ? undefined : foreignPart(parent)
  if (above !== undefined) return above
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return undefined
  const isOwn = found.uid === 0 || found.uid === process.geteuid?.()
  // In a folder with the sticky bit, each user replaces own files only.
  const isReplaceable = found.isDirectory() && (found.mode & 0o1002) === 0o002
  return isOwn && !isReplaceable ? undefined : path
}

/**
 * Returns the path of the socket in a data folder. A key goes only to a socket that no other user can have put there;
 * root calls every socket without one (spec 1.11).
 * @error CommandError the folder is missing, its path is too long, or another user decides what listens there
 */
const socketOfFolder = Effect.fnUntraced(function* (dataDir: string, sendsKey: boolean) {
  const folder = yield* Effect.try({
    try: () => realpathSync(dataDir),
    catch: () =>
      CommandError.unreachable(
        `there is no data folder ${resolve(dataDir)}: run the command in the folder of the service, or set MUSTER_DATA_DIR to its data folder, or MUSTER_URL and MUSTER_API_KEY`
      )
  })
  const socket = join(folder, LOCAL_SOCKET)
  const impossible = whyNoSocket(socket)
  if (impossible !== undefined) {
    return yield* CommandError.unreachable(
      `${impossible}: set MUSTER_URL and MUSTER_API_KEY, or give the service a shorter MUSTER_DATA_DIR`
    )
  }
  if (!sendsKey && process.geteuid?.() === 0) return socket
  // A part that this user cannot read refuses the connection too.
  const foreign = yield* Effect.try(() => foreignPart(socket)).pipe(Effect.orElseSucceed(() => undefined))
  if (foreign === undefined) return socket
  return yield* CommandError.notAllowed(
    `another user decides what listens at ${socket}, by ${foreign}: set MUSTER_URL and MUSTER_API_KEY to call the service at its address${sendsKey ? ", or unset MUSTER_API_KEY as root" : ""}`
  )
})

const noKeyFor = (url: string) =>
  CommandError.notAllowed(
    `there is no key for ${url}: set MUSTER_API_KEY, or run \`muster context add <name> --url ${url} --key-file <file>\`; without MUSTER_URL, the command calls the service of the data folder (MUSTER_DATA_DIR), and needs no key there`
  )

/** The called service. A key goes only to a named address: another process may have an ended service's port. */
const target = Effect.gen(function* () {
  const { apiKey, dataDir, url } = yield* loadCommandSettings
  const context = url === "" ? yield* currentContext : undefined
  const given = apiKey === "" ? undefined : { key: Redacted.make(apiKey), keyFrom: "MUSTER_API_KEY" }
  const address = context?.url ?? url
  if (address !== "") {
    if (given !== undefined) return { url: address, ...given }
    if (context === undefined) return yield* noKeyFor(address)
    return { url: address, key: Redacted.make(context.key), keyFrom: `the context ${context.name}` }
  }
  const socket = yield* socketOfFolder(dataDir, given !== undefined)
  return { url: `unix:${socket}`, ...(given ?? { key: undefined, keyFrom: "this user" }) }
})

/** The service that a command calls, with the key for it and the key's origin. */
export class CommandTarget extends Context.Service<CommandTarget, Effect.Success<typeof target>>()(
  "muster/cli/CommandTarget"
) {
  static readonly find = target
}

import { lstatSync, realpathSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Context, Effect, Redacted } from "effect"
import { LOCAL_SOCKET, whyNoSocket } from "../../contract/domain/transport.ts"
import { loadCommandSettings } from "../../shared/config/command.ts"
import { currentContext } from "./contexts.ts"
import { CommandError } from "./failures.ts"

const unreachable = (message: string) => new CommandError({ status: "unreachable", message })

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
      unreachable(
        `there is no data folder ${resolve(dataDir)}: run the command in the folder of the service, or set MUSTER_DATA_DIR to its data folder, or MUSTER_URL and MUSTER_API_KEY`
      )
  })
  const socket = join(folder, LOCAL_SOCKET)
  const impossible = whyNoSocket(socket)
  if (impossible !== undefined) {
    return yield* unreachable(
      `${impossible}: set MUSTER_URL and MUSTER_API_KEY, or give the service a shorter MUSTER_DATA_DIR`
    )
  }
  if (!sendsKey && process.geteuid?.() === 0) return socket
  // A part that this user cannot read refuses the connection too.
  const foreign = yield* Effect.try(() => foreignPart(socket)).pipe(Effect.orElseSucceed(() => undefined))
  if (foreign === undefined) return socket
  return yield* new CommandError({
    status: "notAllowed",
    message: `another user decides what listens at ${socket}, by ${foreign}: set MUSTER_URL and MUSTER_API_KEY to call the service at its address${sendsKey ? ", or unset MUSTER_API_KEY as root" : ""}`
  })
})

const noKeyFor = (url: string) =>
  new CommandError({
    status: "notAllowed",
    message: `there is no key for ${url}: set MUSTER_API_KEY, or run \`muster context add <name> --url ${url} --key-file <file>\`; without MUSTER_URL, the command calls the service of the data folder (MUSTER_DATA_DIR), and needs no key there`
  })

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

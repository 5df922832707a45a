import { lstatSync, realpathSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Effect } from "effect"
import { LOCAL_SOCKET, whyNoSocket } from "../../contract/domain/transport.ts"
import { CommandError } from "./CommandError.ts"

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
export const socketOfFolder = Effect.fnUntraced(function* (dataDir: string, sendsKey: boolean) {
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

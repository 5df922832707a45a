import { Effect, type Scope, Stream } from "effect"
import { DaemonRefused } from "../../api/Daemon.ts"
import type { IoError } from "../disk/fsio.ts"
import type { ServerState } from "../state/ServerFile.ts"
import { packFiles } from "../transfer/archive.ts"
import { likelyKind } from "./fileContext.ts"
import { type InstanceFiles, instanceFolder } from "./InstanceFiles.ts"

const unreadable = (error: IoError) =>
  new DaemonRefused({
    status: 500,
    detail: error.message,
    hint: "Look at the files of the server on its node."
  })

/** Returns the files of a server that is held and offline, for `Daemon.files`. */
export const exportFiles = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  folder: string,
  { held, spec, status, work }: ServerState
): Effect.fn.Return<Stream.Stream<Uint8Array, DaemonRefused>, DaemonRefused, Scope.Scope> {
  if (held !== true || status !== "offline" || work !== "none") {
    return yield* new DaemonRefused({
      status: 409,
      detail: `the server is not held, or not offline: ${spec.id}`,
      hint: "Hold it and stop it first."
    })
  }
  const paths = yield* Effect.mapError(files.paths(spec), unreadable)
  // Mounts the files first: an unmounted server would look like one without files.
  yield* Effect.mapError(files.open(folder, spec, likelyKind(spec), "kept"), unreadable)
  const archive = yield* Effect.mapError(packFiles(instanceFolder(folder), paths), unreadable)
  return Stream.mapError(archive, unreadable)
})

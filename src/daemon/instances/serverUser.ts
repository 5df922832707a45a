/** The uids of servers: each is kept with its server, and reused only when no file of the server is left. */
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { listFolder, lstat } from "../disk/fsio.ts"
import { recordReader } from "../disk/replaceFile.ts"
import { instanceFolder } from "../files/sharedFiles.ts"
import type { Run, Runtime } from "../runtime/Runtime.ts"
import type { InstanceFile } from "../state/InstanceFile.ts"

/** Returns the user that a server would run as now, and records its uid in the state. */
export const serverUser = Effect.fnUntraced(function* (file: InstanceFile, runtime: Runtime["Service"]) {
  const { spec, uid } = file.get()
  const user = yield* runtime.userFor(spec.definition, { server: spec.id, uid })
  if (user?.own === true && user.uid !== uid) yield* file.update((state) => ({ ...state, uid: user.uid }))
  return user
})

/** Warns of adopted servers that run as root: a daemon that assigned no uids to servers started them. */
export const warnOfRoot = (
  instances: ReadonlyArray<{ readonly file: InstanceFile; run(): Run | undefined }>
) => {
  const ids = instances.flatMap((one) => (one.run()?.asRoot === true ? [one.file.get().spec.id] : []))
  return ids.length === 0
    ? Effect.void
    : Effect.logWarning(
        `servers run as root, because a daemon without uids for servers started them: ${ids.join(", ")}. Restart these servers: each gets a uid of its own`
      )
}

/** The files of a server folder that record its uid and its disk quota. A removal deletes them last. */
export const OWNERSHIP_FILES: ReadonlyArray<string> = ["server.json", "project"]

const readKept = recordReader(Schema.Struct({ uid: Schema.optionalKey(Schema.Int) }))

/** Returns the uid of a server's files by its state, or else by their owner. */
const uidOfFolder = Effect.fnUntraced(function* (folder: string) {
  const kept = yield* Effect.orElseSucceed(readKept(join(folder, "server.json")), () => undefined)
  if (kept?.uid !== undefined) return kept.uid
  return (yield* Effect.orElseSucceed(lstat(instanceFolder(folder)), () => undefined))?.uid
})

/** Reserves the uids of folders of former servers: orphaned ones, and those to be deleted. */
export const reserveKeptUids = Effect.fnUntraced(function* (
  dir: string,
  runtime: Runtime["Service"],
  isOne: (name: string) => boolean = () => true
) {
  for (const name of (yield* listFolder(dir)).filter(isOne)) {
    const uid = yield* uidOfFolder(join(dir, name))
    if (uid !== undefined && uid !== 0) yield* runtime.users.reserve(join(dir, name), uid)
  }
})

/** The uids of servers: each is kept with its server, and given to another only when nothing of the server is left. */
import { join } from "node:path"
import { Effect, Option, Schema } from "effect"
import { listFolder, lstat, readText } from "../disk/fsio.ts"
import { instanceFolder } from "../files/InstanceFiles.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import type { ServerFile } from "../state/ServerFile.ts"

/** The user that a server would run as now; a uid of its own is in its state when this returns. */
export const serverUser = Effect.fnUntraced(function* (file: ServerFile, runtime: Runtime["Service"]) {
  const { spec, uid } = file.get()
  const user = yield* runtime.userFor(spec.definition, { server: spec.id, uid })
  if (user?.own === true && user.uid !== uid) yield* file.update((state) => ({ ...state, uid: user.uid }))
  return user
})

const KeptState = Schema.fromJsonString(Schema.Struct({ uid: Schema.optionalKey(Schema.Int) }))
const decodeKept = Schema.decodeUnknownOption(KeptState)

/** The uids that files in a folder of a server belong to: that of its state, and that of its files where it has none. */
const uidOfFolder = Effect.fnUntraced(function* (folder: string) {
  const text = yield* Effect.orElseSucceed(readText(join(folder, "server.json")), () => "")
  const kept = Option.getOrUndefined(decodeKept(text))?.uid
  if (kept !== undefined) return kept
  return (yield* Effect.orElseSucceed(lstat(instanceFolder(folder)), () => undefined))?.uid
})

/** Keeps the uids of folders that are no servers any more: lost servers, and those that are about to be removed. */
export const holdKept = Effect.fnUntraced(function* (
  dir: string,
  runtime: Runtime["Service"],
  isOne: (name: string) => boolean = () => true
) {
  for (const name of (yield* listFolder(dir)).filter(isOne)) {
    const uid = yield* uidOfFolder(join(dir, name))
    if (uid !== undefined && uid !== 0) yield* runtime.reserveUser(join(dir, name), uid)
  }
})

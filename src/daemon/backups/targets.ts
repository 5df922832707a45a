/** The targets of a node: its own folder, and the folders and S3 servers that the control plane names (spec 12.6). */

import type { FileHandle } from "node:fs/promises"
import { Context, Effect, Layer, Option, Stream } from "effect"
import { HttpClient } from "effect/http"
import type { TargetAccess, TargetTest } from "../../contract/domain/BackupTarget.ts"
import { isWithin } from "../../contract/domain/Files.ts"
import { serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { publicNetworks } from "../../shared/net/addressPolicy.ts"
import { connectTimeoutClient } from "../../shared/net/connectTimeoutClient.ts"
import { IoError, io } from "../disk/fsio.ts"
import { openRoot } from "../disk/safePath.ts"
import { type BackupTarget, enterOwn, folderTarget, type OpenFolder, ownFolder, TEST } from "./target.ts"

/**
 * The setting with the folders below which a target of the type `node` may be. The control plane names the targets: one
 * that was taken over reaches no other part of the host (spec 12.6).
 */
const SETTING = "MUSTER_NODE_BACKUP_FOLDERS"
const OTHERS = 0o077
const OWN = 0o700

/** A disk that is not mounted is no folder without backups. */
const away = (folder: string, next: string) =>
  new IoError({ code: "AWAY", message: `the folder ${folder} does not exist`, next })

/** Lets only the user of the daemon into a folder. */
const closeTo = Effect.fnUntraced(function* (folder: string, handle: FileHandle, rootOwner: number) {
  const { mode, uid } = yield* io(`look at ${folder}`, () => handle.stat())
  // A server of network files may give every file to one user, then also the folder of the setting.
  if (uid !== process.geteuid?.() && uid !== rootOwner)
    return yield* new IoError({
      code: "REFUSED",
      message: `the folder ${folder} belongs to the user ${uid}`,
      next: "Give it to the user of the daemon, or name another folder."
    })
  if ((mode & OTHERS) === 0) return
  yield* Effect.ignore(io(`close ${folder}`, () => handle.chmod(OWN)))
  const closed = yield* io(`look at ${folder}`, () => handle.stat())
  if ((closed.mode & OTHERS) !== 0)
    return yield* new IoError({
      code: "REFUSED",
      message: `other users can read the folder ${folder}, and its file system keeps it so`,
      next: "Mount it with permissions for the user of the daemon alone."
    })
})

/** Returns how the folder of a target is opened. @param allowed the folders that the setting of the node names */
export const allowedFolder =
  (allowed: ReadonlyArray<string>, folder: string): OpenFolder =>
  (make) =>
    Effect.gen(function* () {
      const root = allowed.find((one) => isWithin(one, folder))
      if (root === undefined)
        return yield* new IoError({
          code: "REFUSED",
          message: `the setting ${SETTING} of the node does not allow ${folder}`,
          next: "Add the folder, or one above it, to the setting, and restart the node."
        })
      let handle = yield* openRoot(root).pipe(
        Effect.catchIf(
          ({ code }) => code === "ENOENT",
          () => away(root, `Mount its disk, or make the folder, which ${SETTING} names.`)
        )
      )
      const { uid } = yield* io(`look at ${root}`, () => handle.stat())
      let path = root
      for (const name of folder.slice(root.length).split("/").slice(1)) {
        path = `${path}/${name}`
        const next = yield* enterOwn(path, handle, name, make)
        if (Option.isNone(next)) return yield* away(path, "Mount its disk, if it is on another one.")
        handle = next.value
      }
      yield* closeTo(folder, handle, uid)
      return Option.some(handle)
    })

const CONNECTIONS = 8

export type Targets = (access: TargetAccess) => Effect.Effect<BackupTarget>

/** Where a node stores backups. */
export interface BackupFolders {
  /** Its own folder. */
  readonly own: string
  /** Folders below which targets of the type `node` may have theirs. */
  readonly allowed: ReadonlyArray<string>
  /** The bytes below which the node stops servers that fill the disk. */
  readonly reserve: number
}

/** Returns the targets of a node. Their connections are kept until the scope closes. */
export const makeTargets = Effect.fnUntraced(function* ({ allowed, own, reserve }: BackupFolders) {
  const node = folderTarget(ownFolder(own), reserve)
  const scope = yield* Effect.scope
  const client = (allowPrivate: boolean) =>
    Effect.cached(
      connectTimeoutClient({
        connections: CONNECTIONS,
        networks: publicNetworks(allowPrivate, "MUSTER_BACKUP_ALLOW_PRIVATE")
      }).pipe(
        (layer) => Layer.buildWithScope(layer, scope),
        Effect.map((context) => Context.get(context, HttpClient.HttpClient))
      )
    )
  const [anywhere, publicOnly] = [yield* client(true), yield* client(false)]
  const of: Targets = Effect.fnUntraced(function* (access) {
    if (access.type === "node")
      return access.folder === undefined ? node : folderTarget(allowedFolder(allowed, access.folder), reserve)
    // Most nodes have no such target, and never load the signatures.
    const { s3Target } = yield* Effect.promise(() => import("./s3Target.ts"))
    return s3Target(access, yield* access.allow_private ? anywhere : publicOnly)
  })
  return { node, of }
})

/** Writes, reads and removes an object. It never fails: the result names the step that did. */
export const testTarget = Effect.fnUntraced(function* (target: BackupTarget): Effect.fn.Return<TargetTest> {
  const id = serverId(idBytes(16))
  const key = `${id}/${TEST}`
  const written = Buffer.from(`a test of Muster: ${id}`)
  const write = Effect.scoped(
    Effect.gen(function* () {
      const object = yield* target.put(key)
      yield* object.write(written)
      yield* object.end()
    })
  )
  const read = Effect.flatMap(Stream.runCollect(target.read(key)), (pieces) =>
    written.equals(Buffer.concat([...pieces]))
      ? Effect.void
      : Effect.fail(new IoError({ code: "DAMAGED", message: `read ${key}: its bytes are others` }))
  )
  const steps = [
    ["write", write],
    ["read", read],
    ["delete", target.remove(id)]
  ] as const
  for (const [step, work] of steps) {
    const failed = yield* Effect.match(work, { onSuccess: () => undefined, onFailure: (error) => error })
    if (failed === undefined) continue
    if (step === "read") yield* Effect.ignore(target.remove(id))
    const { message, next } = failed
    return { ok: false, step, reason: next === undefined ? message : `${message}. ${next}` }
  }
  return { ok: true }
})

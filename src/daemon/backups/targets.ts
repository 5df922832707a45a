/** The targets of a node: its own folder, and the folders and S3 servers that the control plane names (spec 12.6). */
import { Context, Effect, Layer, Stream } from "effect"
import { HttpClient } from "effect/http"
import type { TargetAccess, TargetTest } from "../../contract/domain/BackupTarget.ts"
import { serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { publicNetworks } from "../../shared/net/addressPolicy.ts"
import { connectTimeoutClient } from "../../shared/net/connectTimeoutClient.ts"
import { IoError } from "../disk/fsio.ts"
import { allowedFolder } from "./allowedFolder.ts"
import { type BackupTarget, folderTarget, ownFolder } from "./target.ts"

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
  const key = `${id}/test`
  const written = Buffer.from(`a test of Muster: ${id}`)
  const write = Effect.scoped(
    Effect.gen(function* () {
      const object = yield* target.put(key)
      yield* object.write(written)
      yield* object.end
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

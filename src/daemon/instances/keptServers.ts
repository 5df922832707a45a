/**
 * Deleted servers whose files this node keeps (spec 3.19). The name of the folder says so: one rename keeps a server, and one
 * rename gives it back.
 *
 *     servers/.kept-<server id>-<time of the deletion, ms since the epoch>
 */
import { join } from "node:path"
import { Clock, Effect, type Schema } from "effect"
import { ServerId } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import { IoError, listFolder, lstat, syncFolder } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import { openInstanceFile, rewriteInstanceFile } from "../state/InstanceFile.ts"
import { restoredState } from "../state/InstanceState.ts"
import type { Departure, makeOrphanedServers } from "./orphanedServers.ts"

const NAME = /^\.kept-([a-z][a-z0-9]{11})-(\d{1,15})$/

/** Whether a folder next to the servers has the files of a deleted server that is kept. */
export const isKeptFolder = (name: string): boolean => NAME.test(name)

export interface KeptServersOptions {
  readonly serversDir: string
  readonly files: InstanceFiles["Service"]
  readonly orphans: ReturnType<typeof makeOrphanedServers>
  readonly runtime: Runtime["Service"]
  /** Removes a folder in the background; `user` is the name that has its uid. */
  readonly beginRemoval: (id: ServerId, folder: string, user: string) => ReturnType<typeof syncFolder>
}

const unreadable = <A>(effect: Effect.Effect<A, IoError | Schema.SchemaError>): Effect.Effect<A, IoError> =>
  Effect.catchTag(effect, "SchemaError", ({ message }) =>
    Effect.fail(
      new IoError({ code: "UNKNOWN", message: `the state of the server cannot be read: ${message}` })
    )
  )

/** Reads which servers this node keeps. Every call requires the lock of its server. */
export const makeKeptServers = Effect.fnUntraced(function* (options: KeptServersOptions) {
  const { beginRemoval, files, orphans, runtime, serversDir } = options
  const names = (yield* Effect.orDie(listFolder(serversDir))).filter(isKeptFolder)
  /** The folder of each, oldest deletion first. */
  const kept = new Map<ServerId, string>()
  const found = names.flatMap((name) => {
    const [, id = "", at = "0"] = NAME.exec(name) ?? []
    return [{ id: ServerId.make(id), at: Number(at), folder: join(serversDir, name) }]
  })
  for (const { folder, id } of found.toSorted((one, other) => one.at - other.at)) kept.set(id, folder)

  /** Renames a folder, durably, with its uid and its disk quota. */
  const move = Effect.fnUntraced(function* (from: string, to: string, user: string, nextUser: string) {
    yield* files.moveAside(from, to)
    yield* runtime.users.rename(user, nextUser)
    yield* syncFolder(serversDir)
  })

  /** Removes the files of a kept server; a `departure` moves them to the orphaned servers. */
  const remove = Effect.fnUntraced(function* (id: ServerId, departure?: Departure) {
    const folder = kept.get(id)
    if (folder === undefined) return
    if (departure === undefined || (yield* lstat(join(folder, "server.json"))) === undefined) {
      yield* beginRemoval(id, folder, folder)
    } else {
      const state = (yield* openInstanceFile(folder)).get()
      yield* orphans.keep(folder, state, departure)
      yield* files.forget(folder)
    }
    kept.delete(id)
  }, unreadable)

  return {
    has: (id: ServerId): boolean => kept.has(id),
    ids: (): ReadonlyArray<ServerId> => [...kept.keys()],
    /** Keeps the folder of a server. Requires that nothing is mounted in it and no process runs. */
    keep: Effect.fnUntraced(function* (id: ServerId, folder: string) {
      const to = join(serversDir, `.kept-${id}-${yield* Clock.currentTimeMillis}`)
      yield* move(folder, to, id, to)
      kept.set(id, to)
    }),
    /** Gives the folder of a kept server back, as the folder of an offline server. Returns its state. */
    restore: Effect.fnUntraced(function* (spec: ServerSpec, folder: string) {
      const from = kept.get(spec.id)
      if (from === undefined) return undefined
      yield* rewriteInstanceFile(from, (state) => restoredState(state, spec))
      yield* move(from, folder, from, spec.id)
      kept.delete(spec.id)
      return yield* openInstanceFile(folder)
    }, unreadable),
    remove,
    /** Begins to remove the oldest deletion, unless files are being removed; false if there is none. */
    free: ({ isBusy, locks, onFreed }: FreeOptions) =>
      Effect.gen(function* () {
        if (isBusy()) return true
        const [id] = kept.keys()
        if (id === undefined) return false
        yield* Effect.logWarning("the disk is almost full: the files of a deleted server are removed").pipe(
          Effect.annotateLogs({ server_id: id })
        )
        yield* locks.withLock(id)(remove(id))
        yield* onFreed
        return true
      })
  }
})

interface FreeOptions {
  readonly isBusy: () => boolean
  readonly locks: KeyedLock<ServerId>
  readonly onFreed: Effect.Effect<void>
}

export type KeptServers = Effect.Success<ReturnType<typeof makeKeptServers>>

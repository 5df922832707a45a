/**
 * The removal of servers: the process ends, and the folder is kept for operators or deleted in the background. One renamed
 * to `.removed-<server id>-<uuid>` has no server.
 */
import { randomUUID } from "node:crypto"
import { rmdirSync, unlinkSync } from "node:fs"
import { join } from "node:path"
import { Clock, Deferred, Effect, Fiber, type Scope, Semaphore } from "effect"
import { ServerId, serverIdPattern } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { backoff } from "../../shared/work/backoff.ts"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import { makeWorkQueue } from "../../shared/work/WorkQueue.ts"
import {
  IoError,
  ioSync,
  listFolder,
  listFolderSync,
  lstat,
  removeTree,
  rename,
  syncFolder
} from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { discardUploads } from "../files/uploadFiles.ts"
import { runProgram } from "../host/runTool.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import { openInstanceFile } from "../state/InstanceFile.ts"
import type { Instance } from "./Instance.ts"
import { isKeptFolder, type KeptServers } from "./keptServers.ts"
import { type Departure, hasFiles, isKept, type makeOrphanedServers } from "./orphanedServers.ts"
import { OWNERSHIP_FILES } from "./serverUser.ts"

const REMOVED = ".removed-"
const CORRUPT = ".corrupt-"
const removedName = (serverId: ServerId): string => `${REMOVED}${serverId}-${randomUUID()}`
const isRemoved = (name: string): boolean => name.startsWith(REMOVED)
/** Whether a folder next to the servers has files of a former server. */
export const isAside = (name: string): boolean =>
  isRemoved(name) || isKeptFolder(name) || name.startsWith(CORRUPT)

type Files = InstanceFiles["Service"]

/** Reads a server's folder, if its state is usable. An unreadable folder is renamed, never deleted. */
const readServer = Effect.fnUntraced(function* (serversDir: string, id: ServerId, files: Files) {
  const folder = join(serversDir, id)
  if ((yield* lstat(join(folder, "server.json"))) === undefined) {
    yield* rename(folder, join(serversDir, removedName(id))) // interrupted before the creation was acknowledged
    return undefined
  }
  const opened = yield* Effect.result(openInstanceFile(folder))
  if (opened._tag === "Success" && opened.success.get().spec.id === id)
    return { id, folder, file: opened.success }
  const aside = `${CORRUPT}${id}-${yield* Clock.currentTimeMillis}`
  const reason = opened._tag === "Failure" ? opened.failure.message.split("\n")[0] : "it names another server"
  yield* Effect.logError(`the state of the server cannot be read and is kept as ${aside}: ${reason}`)
  yield* files.close(folder)
  yield* rename(folder, join(serversDir, aside))
  return undefined
})

/** Reads the servers of this node. The folder of an interrupted creation gets the name of a removed server. */
export const readServers = Effect.fnUntraced(function* (serversDir: string, files: Files) {
  const names = yield* Effect.orDie(listFolder(serversDir))
  const read = (id: ServerId) =>
    Effect.catchTag(readServer(serversDir, id, files), "IoError", (error) =>
      Effect.as(Effect.logError(`the server is skipped: ${error.message}`), undefined)
    ).pipe(Effect.annotateLogs({ server_id: id }))
  const servers = yield* Effect.forEach(
    names.filter((name) => serverIdPattern.test(name)).map((name) => ServerId.make(name)),
    read,
    { concurrency: 16 }
  )
  return servers.filter((server) => server !== undefined)
})

/** Folders that are removed at a time: a large one does not delay the next, and the disk has time for servers. */
const CONCURRENT = 2

export interface FolderRemovalsOptions {
  readonly serversDir: string
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  readonly collect: Effect.Effect<void>
}

/** Removes paths by `rm`: in this process, 300,000 files would delay every other file operation by up to 20 s. */
const removeByTool = Effect.fnUntraced(function* (paths: ReadonlyArray<string>) {
  const { code, stderr } = yield* runProgram([
    "rm",
    "--recursive",
    "--force",
    "--one-file-system",
    "--",
    ...paths
  ])
  if (code === 0) return
  const [line] = stderr.split("\n", 1)
  return yield* new IoError({ code: "UNKNOWN", message: line || `rm exited with ${code}` })
})

/** Removes a folder that has no other file than those. */
const removeLast = Effect.fnUntraced(function* (folder: string, files: ReadonlyArray<string>) {
  yield* ioSync(`remove ${folder}`, () => {
    for (const name of files) unlinkSync(join(folder, name))
    rmdirSync(folder)
  })
})

/** Starts removals in the scope, first the unfinished ones of an earlier process, whose uids must be reserved. */
export const makeFolderRemovals = Effect.fnUntraced(function* (options: FolderRemovalsOptions) {
  const { collect, files, runtime, serversDir } = options
  const permits = yield* Semaphore.make(CONCURRENT)

  const remove = Effect.fnUntraced(function* (folder: string) {
    yield* files.close(folder)
    // Few: the process of the server cannot write there.
    const names = yield* listFolderSync(folder)
    const last = names.filter((name) => OWNERSHIP_FILES.includes(name))
    const paths = names.filter((name) => !last.includes(name)).map((name) => join(folder, name))
    if (paths.length > 0) {
      yield* Effect.catch(removeByTool(paths), (error) =>
        // Opens folders that are closed to an ordinary user.
        Effect.mapError(Effect.forEach(paths, removeTree, { discard: true }), () => error)
      )
    }
    yield* Effect.catch(removeLast(folder, last), () => removeTree(folder))
  })

  const queue = yield* makeWorkQueue({
    name: "removal of a server folder",
    fields: (folder: string) => ({ folder }),
    step: Effect.fnUntraced(function* (folder, attempt) {
      // The release waits for others, and needs no permit.
      yield* Effect.tapError(permits.withPermit(remove(folder)), ({ message }) =>
        attempt === 1
          ? Effect.logWarning(`the folder of a removed server cannot be deleted, retrying: ${message}`)
          : Effect.void
      )
      yield* files.forget(folder)
      yield* runtime.users.release(folder)
      yield* collect
      return "done" as const
    }),
    backoff: backoff({ first: "1 second", longest: "10 minutes" }),
    resume: Effect.map(listFolder(serversDir), (names) =>
      names.filter(isRemoved).map((name) => join(serversDir, name))
    )
  })

  return {
    /** Renames a server's folder, durably, and starts its removal. Requires that nothing is mounted in it. */
    begin: Effect.fnUntraced(function* (serverId: ServerId, folder: string, user: string = serverId) {
      const removed = join(serversDir, removedName(serverId))
      yield* files.moveAside(folder, removed)
      yield* runtime.users.rename(user, removed)
      queue.add(removed)
      yield* syncFolder(serversDir)
    }),
    /** Whether files are being removed. */
    isBusy: (): boolean => queue.size() > 0
  }
})

/** The time for which a removal is remembered, in ms: far longer than a call can be in flight. */
const MEMORY_MILLIS = 60_000
/** The limit of remembered removals; the oldest are dropped. */
const MAX_REMOVALS = 10_000

interface Removal {
  readonly at: number
  /** The sequence of the server's last report; infinite if there was no server. */
  readonly sequence: number
  readonly arrival: string | undefined
}

/** The recent removals. A creation sent before one has no effect; a later one has a higher sequence or migration. */
export class RecentRemovals {
  readonly #removals = new Map<ServerId, Removal>()

  /** Records a removal, also of a missing server, at `now` in ms of a monotonic clock. */
  add(
    id: ServerId,
    now: number,
    was?: { readonly sequence: number; readonly arrival?: string | undefined }
  ): void {
    // A repeated removal refers to the server of the first one.
    const { arrival, sequence } = was ??
      this.#removals.get(id) ?? { sequence: Number.POSITIVE_INFINITY, arrival: undefined }
    this.#removals.delete(id)
    this.#removals.set(id, { at: now, sequence, arrival })
    for (const [oldest, { at }] of this.#removals) {
      if (this.#removals.size <= MAX_REMOVALS && now - at < MEMORY_MILLIS) break
      this.#removals.delete(oldest)
    }
  }

  /** Whether a creation was sent before the removal of its server. */
  covers(spec: Pick<ServerSpec, "id" | "last_sequence" | "arrival">, now: number): boolean {
    const removal = this.#removals.get(spec.id)
    if (removal === undefined || now - removal.at >= MEMORY_MILLIS) return false
    if (spec.arrival !== undefined) return spec.arrival === removal.arrival
    return (spec.last_sequence ?? 0) <= removal.sequence
  }

  forget(id: ServerId): void {
    this.#removals.delete(id)
  }
}

export interface Entry {
  readonly instance: Instance
  ended: boolean
  /** Set during a removal; completes when the folder is renamed. */
  removed: Deferred.Deferred<void, DaemonRefused> | undefined
}

/** Stops a server within its stop timeout; after a `shutdown`, the next daemon starts it again. */
export const stop = Effect.fnUntraced(function* (instance: Instance, action: "stop" | "shutdown" = "stop") {
  const { file } = instance
  const wait_seconds = stopTimeoutOf(file.get().spec.definition)
  yield* Effect.ignore(instance.power(action, wait_seconds))
  yield* Effect.sync(() => isUp(file.get().status)).pipe(
    Effect.delay("50 millis"),
    Effect.repeat({ while: (up) => up }),
    Effect.timeoutOption((wait_seconds + 15) * 1000)
  )
})

export interface RemovalOptions {
  readonly entries: Map<ServerId, Entry>
  readonly files: InstanceFiles["Service"]
  readonly folderRemovals: Effect.Success<ReturnType<typeof makeFolderRemovals>>
  readonly kept: KeptServers
  readonly locks: KeyedLock<ServerId>
  readonly now: () => number
  readonly orphans: ReturnType<typeof makeOrphanedServers>
  readonly parent: Scope.Scope
  readonly refused: (error: IoError) => DaemonRefused
  readonly removals: RecentRemovals
}

export const makeInstanceRemoval = (options: RemovalOptions) => {
  const { entries, files, folderRemovals, kept, locks, now, orphans, parent, refused, removals } = options

  const moveAway = Effect.fnUntraced(function* (id: ServerId, entry: Entry, departure?: Departure | "kept") {
    const { file, folder } = entry.instance
    if (departure === "kept") return yield* kept.keep(id, folder)
    if (departure !== undefined && isKept(file.get(), departure)) {
      // Files that cannot be read are kept as well.
      const found = yield* Effect.orElseSucceed(hasFiles(folder), () => true)
      if (found) {
        yield* orphans.keep(folder, file.get(), departure)
        return yield* files.forget(folder)
      }
    }
    yield* folderRemovals.begin(id, folder)
  })

  const removeEntry = Effect.fnUntraced(function* (
    id: ServerId,
    entry: Entry,
    departure?: Departure | "kept"
  ) {
    if (departure !== undefined && departure !== "kept" && !entry.ended) {
      // The control plane must not receive further reports.
      yield* entry.instance.stopReports
      yield* Effect.interruptible(stop(entry.instance))
    }
    if (!entry.ended) yield* entry.instance.shutDown
    entry.ended = true
    yield* entry.instance.close
    yield* discardUploads(files, entry.instance.folder, entry.instance.file.get().spec)
    yield* Effect.mapError(files.close(entry.instance.folder), refused)
    yield* Effect.mapError(moveAway(id, entry, departure), refused)
    const { sequence, spec } = entry.instance.file.get()
    entries.delete(id)
    removals.add(id, now(), { sequence, arrival: spec.arrival })
  })

  /** Removes the files of a server that was deleted before, unless they are to be kept. */
  const removeKept = (id: ServerId, departure?: Departure | "kept") =>
    departure === "kept" || !kept.has(id) ? Effect.void : Effect.mapError(kept.remove(id, departure), refused)

  return Effect.fn("Instances.remove")(function* (id: ServerId, departure?: Departure | "kept") {
    // Under the lock: waits for a creation in progress.
    const find = Effect.gen(function* () {
      const found = entries.get(id)
      if (found !== undefined) return found
      if (departure !== "kept" || !kept.has(id)) removals.add(id, now())
      yield* removeKept(id, departure)
    })
    const entry = entries.get(id) ?? (yield* locks.withLock(id)(find))
    if (entry === undefined) return
    if (entry.removed !== undefined) return yield* Deferred.await(entry.removed)
    const removed = yield* Deferred.make<void, DaemonRefused>()
    entry.removed = removed
    const work = removeEntry(id, entry, departure).pipe(
      Effect.onExit((exit) => {
        entry.removed = undefined
        return Deferred.done(removed, exit)
      }),
      Effect.uninterruptible
    )
    // Forked: a stop may take longer than the caller waits, and continues without the caller.
    yield* departure === undefined || departure === "kept"
      ? work
      : Effect.flatMap(Effect.forkIn(work, parent), Fiber.join)
  })
}

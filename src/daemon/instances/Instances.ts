/**
 * The servers of this node. Imports every other folder of the daemon. Read first: this file, `instanceChanges.ts` (on a
 * server), `instanceRun.ts` (its process), `instanceWork.ts` (its files).
 */
import { isDeepStrictEqual } from "node:util"
import { Clock, Context, Deferred, Effect, FiberSet, Layer, Semaphore } from "effect"
import { type ServerId, serverIdPattern } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { TracePlace } from "../../shared/observability/trace.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { makeFolder } from "../disk/fsio.ts"
import { InstanceFiles } from "../files/InstanceFiles.ts"
import type { FileSources } from "../files/sources.ts"
import { Installer } from "../install/Installer.ts"
import { Runtime } from "../runtime/Runtime.ts"
import { type InstanceFile, WaitingWrites } from "../state/InstanceFile.ts"
import { daemonServer, type InstanceState } from "../state/InstanceState.ts"
import type { Uplink } from "../uplink/uplink.ts"
import { watchDisks, watchReserve } from "./diskWatch.ts"
import { Instance, type InstanceOptions } from "./Instance.ts"
import { makeCreation } from "./instanceCreation.ts"
import {
  type Entry,
  isAside,
  makeFolderRemovals,
  makeInstanceRemoval,
  RecentRemovals,
  type RemovalOptions,
  readServers,
  stop
} from "./instanceRemoval.ts"
import { makeKeptServers } from "./keptServers.ts"
import { besideServers, makeOrphanedServers } from "./orphanedServers.ts"
import { refusals, refuse } from "./refusals.ts"
import { makeStartQueue } from "./StartQueue.ts"
import { reserveKeptUids, warnOfRoot } from "./serverUser.ts"

export interface InstancesTuning {
  /** Seconds between two measurements of disk usage. Default 30. */
  readonly diskCheckSeconds?: number
  /** See `DiskReserveOptions`. Default 1 GiB. */
  readonly diskReserve?: number
  /** Servers that the node itself starts at a time. Default 2. */
  readonly startParallel?: number
}

export interface InstancesOptions extends InstancesTuning {
  /** The folder of server folders, for this service alone. */
  readonly serversDir: string
  readonly lostDir: string
  readonly sources: FileSources
}

const FILES_MADE_AT_ONCE = 16

const ALL = { concurrency: "unbounded", discard: true } as const

/** The default of {@link InstancesTuning.diskReserve}, in bytes. */
export const DISK_RESERVE = 1024 ** 3

/** The longest wait for the adoption of processes at the start, in ms. */
const ADOPTION_TIMEOUT = 5000

const notFound = (id: ServerId) =>
  refuse(404, `server not found: ${id}`, "Ask the control plane which node has the server.")
const notAnId = (id: string) =>
  refuse(422, `not a server id: ${id}`, "Use twelve characters a-z and 0-9, the first a letter.")

/** Reserves the uids of servers, and those of the folders of former ones. */
const reserveUids = Effect.fnUntraced(function* (
  { lostDir, serversDir }: InstancesOptions,
  servers: Effect.Success<ReturnType<typeof readServers>>,
  runtime: Runtime["Service"]
) {
  for (const { file, id } of servers) {
    const { uid } = file.get()
    if (uid !== undefined) yield* runtime.users.reserve(id, uid)
  }
  yield* Effect.orDie(reserveKeptUids(serversDir, runtime, isAside))
  for (const dir of [lostDir, besideServers(serversDir)]) {
    yield* Effect.orDie(reserveKeptUids(dir, runtime))
  }
})

/** Kills the processes of servers that have no folder. */
const killUnknown = Effect.fnUntraced(function* (runtime: Runtime["Service"], known: ReadonlySet<string>) {
  for (const name of yield* runtime.alive) {
    if (known.has(name)) continue
    yield* Effect.logInfo("killing the remaining processes").pipe(Effect.annotateLogs({ server_id: name }))
    yield* runtime.sweep(name)
  }
})

/** Waits until the processes of servers are adopted. */
const awaitAdoption = Effect.fnUntraced(function* (instances: ReadonlyArray<Instance>) {
  yield* Effect.forEach(instances, ({ adopted }) => adopted, ALL).pipe(Effect.timeoutOption(ADOPTION_TIMEOUT))
  const servers = instances.filter((instance) => instance.run() !== undefined).length
  if (servers > 0) {
    yield* Effect.logInfo("running servers adopted").pipe(Effect.annotateLogs({ servers }))
  }
  yield* warnOfRoot(instances)
})

/** Returns how a server makes way for a creation: the copy of an earlier migration, and one that is up though it was deleted. */
const replacedBy = ({ sequence, spec }: InstanceState, created: ServerSpec) => {
  const { allocations, arrival, last_sequence = 0, restore } = created
  if (arrival !== undefined && spec.arrival !== arrival) return { why: "moved" } as const
  if (restore !== true) return undefined
  // One that was given back already has this sequence, and may have been started since. Later undeletes have higher ones.
  const isEarlier = (spec.last_sequence ?? 0) < last_sequence
  const isOther = isEarlier && !isDeepStrictEqual(spec.allocations, allocations)
  return sequence < last_sequence || isOther ? "kept" : undefined
}

const closeInstance =
  (files: InstanceFiles["Service"]) =>
  ({ end, file, folder }: Instance) =>
    Effect.andThen(
      Effect.andThen(end, file.flush),
      isUp(file.get().status) ? Effect.void : Effect.ignore(files.close(folder))
    )

interface RemovalParts extends Omit<RemovalOptions, "folderRemovals" | "kept"> {
  readonly collect: Installer["Service"]["collect"]
  readonly runtime: Runtime["Service"]
}

/** Continues the removals of an earlier process, and reads the deleted servers that are kept. */
const makeRemovals = Effect.fnUntraced(function* (serversDir: string, parts: RemovalParts) {
  const { collect, files, orphans, runtime } = parts
  const folderRemovals = yield* makeFolderRemovals({ serversDir, files, runtime, collect })
  const beginRemoval = folderRemovals.begin
  const kept = yield* makeKeptServers({ beginRemoval, files, orphans, runtime, serversDir })
  return { folderRemovals, kept, remove: makeInstanceRemoval({ ...parts, folderRemovals, kept }) }
})

/** Opens the servers on disk, continues their processes and work, and kills processes of unknown servers. */
const makeInstances = Effect.fnUntraced(function* (options: InstancesOptions) {
  const { diskCheckSeconds: seconds = 30, diskReserve: reserve = DISK_RESERVE, serversDir } = options
  const { ofDisk: diskRefused, ofNode } = refusals(options.sources)
  const runtime = yield* Runtime
  const installer = yield* Installer
  const files = yield* InstanceFiles
  const parent = yield* Effect.scope
  const uplink = yield* Deferred.make<Uplink>()
  /** Serialises the calls for each server, so that a repeated create makes one server. */
  const locks = makeKeyedLock<ServerId>()
  const entries = new Map<ServerId, Entry>()
  const all = () => [...entries.values()].map(({ instance }) => instance)
  const removals = new RecentRemovals()
  const orphans = makeOrphanedServers({ lostDir: options.lostDir, nearDir: besideServers(serversDir) })
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)

  // Mounts look like files of the folder, so all mounts of offline servers are removed when the service ends.
  yield* Effect.addFinalizer(() =>
    Effect.forEach(all(), closeInstance(files), { concurrency: 4, discard: true })
  )
  // After the finalizer above: what servers do ends before their files are closed.
  const fork = yield* FiberSet.makeRuntime<never, void, never>()
  const starts = yield* makeStartQueue(function* () {
    for (const { instance, removed } of entries.values()) if (removed === undefined) yield instance
  }, options.startParallel ?? 2)
  const instanceOptions: InstanceOptions = {
    changes: makeKeyedLock<ServerId>(),
    starts,
    files,
    runtime,
    installer,
    sources: {
      ...options.sources,
      arrivals: (id) => Effect.flatMap(Deferred.await(uplink), (link) => link.files(id))
    },
    turns: yield* Semaphore.make(FILES_MADE_AT_ONCE),
    uplink: Deferred.await(uplink),
    replacePorts: (id, taken) =>
      Effect.flatMap(Deferred.await(uplink), (link) => link.replacePorts(id, taken)),
    waitingWrites: new WaitingWrites(fork),
    fork
  }
  const open = (folder: string, file: InstanceFile, place?: TracePlace) => {
    const { spec } = file.get()
    files.register(folder, spec)
    const instance = new Instance(file, folder, instanceOptions, place)
    entries.set(spec.id, { instance, ended: false, removed: undefined })
    return instance
  }

  yield* Effect.orDie(makeFolder(serversDir))
  yield* orphans.finishAll
  const found = yield* readServers(serversDir, files)
  yield* reserveUids(options, found, runtime)
  const { collect } = installer
  const { folderRemovals, kept, remove } = yield* makeRemovals(serversDir, {
    ...{ collect, entries, files, locks, now, orphans, parent, removals, runtime },
    refused: diskRefused
  })
  yield* killUnknown(runtime, new Set(found.map(({ id }) => id)))
  for (const server of found) open(server.folder, server.file)
  yield* awaitAdoption(all())
  yield* collect
  yield* Effect.forkScoped(watchDisks({ files, instances: all, seconds }))
  const { dataDir } = options.sources
  const freeKept = kept.free({
    isBusy: folderRemovals.isBusy,
    locks,
    onFreed: Effect.sync(() => void fork(Effect.flatMap(Deferred.await(uplink), (link) => link.register)))
  })
  yield* Effect.forkScoped(watchReserve({ dataDir, files, freeKept, reserve, instances: all, seconds }))

  const makeOrDefine = makeCreation({
    diskRefused,
    kept,
    now,
    ofNode,
    open,
    find: (id) => entries.get(id)?.instance,
    removals,
    runtime,
    serversDir
  })

  return {
    list: () => all().map(({ file }) => daemonServer(file.get())),
    get: Effect.fnUntraced(function* (id: ServerId) {
      const entry = entries.get(id)
      return entry === undefined || entry.removed !== undefined ? yield* notFound(id) : entry.instance
    }),
    /** The deleted servers whose files this node keeps, oldest deletion first. */
    kept: kept.ids,
    isKept: kept.has,
    arrivalOf: (id: ServerId) => entries.get(id)?.instance.file.get().spec.arrival,
    /** Creates a server, or gives it a later definition. A creation sent before a recent removal is refused. */
    create: Effect.fn("Instances.create")(function* (spec: ServerSpec) {
      if (!serverIdPattern.test(spec.id)) return yield* notAnId(spec.id)
      const entry = entries.get(spec.id)
      if (entry?.removed !== undefined) yield* Deferred.await(entry.removed)
      const existing = entries.get(spec.id)?.instance.file.get()
      const replaced = existing === undefined ? undefined : replacedBy(existing, spec)
      if (replaced !== undefined) yield* remove(spec.id, replaced)
      return daemonServer(yield* locks.withLock(spec.id)(makeOrDefine(spec)).pipe(Effect.uninterruptible))
    }),
    /**
     * Removes a server, its files in the background. A `departure` stops it first and moves saved files to the orphaned
     * servers; `kept` keeps them until a creation or another removal.
     */
    remove,
    connect: (link: Uplink) => Effect.asVoid(Deferred.succeed(uplink, link)),
    /** Starts the servers that were up when the node ended, except those that are gone or that a caller has stopped. */
    beginStarts: starts.begin,
    /** Stops all servers, each within its stop timeout; the next daemon starts them again. */
    stopAll: Effect.suspend(() => {
      starts.close()
      return Effect.forEach(all(), (instance) => stop(instance, "shutdown"), ALL)
    })
  }
})

export class Instances extends Context.Service<Instances, Effect.Success<ReturnType<typeof makeInstances>>>()(
  "muster/daemon/Instances"
) {
  static readonly layer = (options: InstancesOptions) => Layer.effect(Instances, makeInstances(options))
}

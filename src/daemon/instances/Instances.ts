import { randomUUID } from "node:crypto"
import { join } from "node:path"
import { Clock, Context, Deferred, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { DaemonRefused } from "../../api/Daemon.ts"
import { serverIdPattern } from "../../domain/Id.ts"
import type { DaemonServer, ServerSpec } from "../../domain/NodeMessages.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import { makeKeyedLock } from "../../work/KeyedLock.ts"
import { openConsoleLog } from "../console/ConsoleLog.ts"
import { sendReports, type Uplink } from "../controlPlane/ReportOutbox.ts"
import { lstat, makeFolder, orMissing, removeTree, rename } from "../disk/fsio.ts"
import { type FileSources, InstanceFiles } from "../files/InstanceFiles.ts"
import { hasFiles } from "../files/ownFiles.ts"
import { Installer } from "../install/Installer.ts"
import { Runtime } from "../runtime/Runtime.ts"
import { createServerFile, daemonServer, type ServerFile } from "../state/ServerFile.ts"
import { watchDisks } from "./diskWatch.ts"
import { type Instance, openInstance } from "./Instance.ts"
import { besideServers, type Departure, isKept, makeOrphanedServers } from "./orphanedServers.ts"
import { Removed } from "./Removed.ts"
import { refusals } from "./refusals.ts"
import { isAside, REMOVED, readServers, removeFor } from "./serverFolders.ts"
import { holdKept } from "./serverUser.ts"

export interface InstancesOptions {
  /** Folder of the servers' folders, for this service alone. */
  readonly servers_dir: string
  /** Folder of servers that are lost: kept for people. */
  readonly lost_dir: string
  readonly sources: FileSources
  /** Seconds between two measurements of what servers have written. Default 30. */
  readonly disk_check_seconds?: number
}

interface Entry {
  readonly instance: Instance
  readonly scope: Scope.Closeable
  readonly reporter: Fiber.Fiber<never>
  /** It is not served any more: its folder could not be removed with it. */
  ended: boolean
  /** Set while it is being removed; done when its folder has gone. */
  removed: Deferred.Deferred<void, DaemonRefused> | undefined
}

/** How long the start waits for processes that are hard to end, in ms. */
const ADOPTION_PATIENCE = 5000
/** How long a server that is not known any more may take to stop, in seconds. */
const PATIENCE = 30

const notFound = (id: string) =>
  new DaemonRefused({ status: 404, detail: `server not found: ${id}`, hint: "This node does not have it." })
const removedLately = (id: string) =>
  new DaemonRefused({
    status: 409,
    detail: `server was removed: ${id}`,
    hint: "Whoever has asked for it did not know that yet; look whether it is still there."
  })

/** The servers of this node. */
export class Instances extends Context.Service<
  Instances,
  {
    readonly list: () => ReadonlyArray<DaemonServer>
    get(id: string): Effect.Effect<Instance, DaemonRefused>
    /** The move by which a server came here, if it came by one. */
    readonly arrivalOf: (id: string) => string | undefined
    /**
     * A server that exists answers its state; a new one is on disk when this returns. One that was removed lately, and
     * that whoever asks for it does not know to be removed, is refused with 409.
     */
    create(spec: ServerSpec): Effect.Effect<DaemonServer, DaemonRefused>
    /**
     * Removes a server and its files; `departure`: it was not deleted, so it is asked to stop first, and its files are kept
     * where it is saved.
     */
    remove(id: string, departure?: Departure): Effect.Effect<void, DaemonRefused>
    /** From now on reports are sent. */
    connect(uplink: Uplink): Effect.Effect<void>
    /** Stops every server, at most so many seconds each. */
    stopAll(wait_seconds: number): Effect.Effect<void>
  }
>()("muster/daemon/Instances") {
  /**
   * Opens what is on disk: processes that still run are adopted, work that was cut off goes on, processes of servers
   * that are not there any more are killed.
   */
  static readonly layer = (options: InstancesOptions) =>
    Layer.effect(
      Instances,
      Effect.gen(function* () {
        const { servers_dir } = options
        const { ofDisk: diskRefused, ofNode } = refusals(options.sources)
        const runtime = yield* Runtime
        const installer = yield* Installer
        const files = yield* InstanceFiles
        const parent = yield* Effect.scope
        const uplink = yield* Deferred.make<Uplink>()
        /** Serialises the calls for each server, so that a repeated create makes one server. */
        const locks = makeKeyedLock()
        const entries = new Map<string, Entry>()
        const gone = new Removed()
        const lost = makeOrphanedServers({ lost_dir: options.lost_dir, near_dir: besideServers(servers_dir) })
        const clock = yield* Clock.Clock
        const now = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
        const sources: FileSources = {
          ...options.sources,
          arrivals: (id) => Effect.flatMap(Deferred.await(uplink), (link) => link.files(id))
        }

        const open = Effect.fnUntraced(function* (folder: string, file: ServerFile) {
          const scope = yield* Scope.fork(parent)
          const console = yield* openConsoleLog(folder)
          const instance = yield* openInstance(
            { file, files, folder, console, runtime, installer, sources },
            scope
          )
          files.know(folder, file.get().spec)
          const reporter = yield* Deferred.await(uplink).pipe(
            Effect.flatMap((link) => sendReports(file, link)),
            Effect.forkIn(scope)
          )
          entries.set(file.get().spec.id, { instance, scope, reporter, ended: false, removed: undefined })
        })

        /** The uid of a new server that would be a plain process now; one whose engine is away may get its own later. */
        const firstUid = Effect.fnUntraced(function* ({ definition, id }: ServerSpec) {
          const kind = yield* Effect.option(runtime.kindFor(definition))
          if (kind._tag === "None" || kind.value !== "process") return undefined
          return (yield* runtime.userFor(definition, { server: id }))?.uid
        })

        const create = Effect.fnUntraced(function* (spec: ServerSpec) {
          const folder = join(servers_dir, spec.id)
          const uid = yield* firstUid(spec)
          const file = yield* makeFolder(folder).pipe(
            Effect.andThen(createServerFile(folder, spec, uid)),
            Effect.onError(() =>
              Effect.andThen(Effect.ignore(removeTree(folder)), runtime.releaseUser(spec.id))
            )
          )
          yield* open(folder, file)
          gone.forget(spec.id)
          return file.get()
        })

        const createOnce = Effect.fn("Instances.create")(function* (spec: ServerSpec) {
          if (!serverIdPattern.test(spec.id)) {
            return yield* new DaemonRefused({
              status: 422,
              detail: `not a server id: ${spec.id}`,
              hint: "Ids are `srv_` and a ULID."
            })
          }
          const removed = entries.get(spec.id)?.removed
          if (removed !== undefined) yield* Deferred.await(removed)
          // A copy that an earlier move has left here is not the server that is to come.
          const there = entries.get(spec.id)?.instance.file.get()
          if (there !== undefined && spec.arrival !== undefined && there.spec.arrival !== spec.arrival) {
            yield* remove(spec.id, { why: "moved" })
          }
          const existingOrNew = Effect.suspend(() => {
            const there = entries.get(spec.id)
            if (there !== undefined) return Effect.succeed(there.instance.file.get())
            if (gone.covers(spec, now())) return Effect.fail(removedLately(spec.id))
            return Effect.mapError(create(spec), (error) =>
              error._tag === "IoError" ? diskRefused(error) : ofNode(error)
            )
          })
          const state = yield* locks.withLock(spec.id)(existingOrNew).pipe(Effect.uninterruptible)
          return daemonServer(state)
        })

        const stop = Effect.fnUntraced(function* (instance: Instance, wait_seconds: number) {
          const { file } = instance
          yield* Effect.ignore(instance.power("stop", wait_seconds))
          yield* Effect.sync(() => isUp(file.get().status)).pipe(
            Effect.delay("50 millis"),
            Effect.repeat({ while: (up) => up }),
            Effect.timeoutOption((wait_seconds + 15) * 1000)
          )
        })

        /** Takes the folder of a server from its place: for good, or to where it is kept. */
        const takeAway = Effect.fnUntraced(function* (id: string, entry: Entry, departure?: Departure) {
          const { file, folder } = entry.instance
          if (departure !== undefined && isKept(file.get(), departure)) {
            // What cannot be read is kept, too.
            const found = yield* Effect.orElseSucceed(hasFiles(folder), () => true)
            if (found) return yield* lost.keep(folder, file.get(), departure)
          }
          const aside = join(servers_dir, `${REMOVED}${id}-${randomUUID()}`)
          yield* rename(folder, aside).pipe(orMissing(undefined))
          // It is gone for good; what cannot be deleted now is deleted at the next start.
          return Effect.andThen(
            removeFor(files, aside),
            Effect.orElseSucceed(lstat(aside), () => "unknown")
          )
        })

        const removeEntry = Effect.fnUntraced(function* (id: string, entry: Entry, departure?: Departure) {
          if (departure !== undefined && !entry.ended) {
            // Nobody is to hear of it any more.
            yield* Fiber.interrupt(entry.reporter)
            yield* Effect.interruptible(stop(entry.instance, PATIENCE))
          }
          if (!entry.ended) yield* entry.instance.shutDown
          entry.ended = true
          yield* Scope.close(entry.scope, Exit.void)
          yield* Effect.mapError(files.close(entry.instance.folder), diskRefused)
          const discard = yield* Effect.mapError(takeAway(id, entry, departure), diskRefused)
          const { sequence, spec } = entry.instance.file.get()
          entries.delete(id)
          gone.add(id, now(), { sequence, arrival: spec.arrival })
          yield* files.forget(entry.instance.folder)
          // Files that are left, or kept, hold the uid of the server.
          if (discard !== undefined && (yield* discard) === undefined) yield* runtime.releaseUser(id)
          yield* installer.collect
        })

        const remove = Effect.fn("Instances.remove")(function* (id: string, departure?: Departure) {
          // One that is just being made is waited for.
          const find = Effect.sync(() => {
            const found = entries.get(id)
            if (found === undefined) gone.add(id, now())
            return found
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
          // A stop may take longer than whoever has asked for it waits: it goes on without them.
          yield* departure === undefined ? work : Effect.flatMap(Effect.forkIn(work, parent), Fiber.join)
        })

        const get = Effect.fnUntraced(function* (id: string) {
          const entry = entries.get(id)
          return entry === undefined || entry.removed !== undefined ? yield* notFound(id) : entry.instance
        })

        // What is mounted looks like files of the folder: none of it is left there when the service ends.
        yield* Effect.addFinalizer(() =>
          Effect.forEach(
            [...entries.values()].filter(({ instance }) => !isUp(instance.file.get().status)),
            ({ instance }) => Effect.ignore(files.close(instance.folder)),
            { concurrency: 4, discard: true }
          )
        )
        yield* Effect.orDie(makeFolder(servers_dir))
        yield* lost.goOn
        const found = yield* readServers(servers_dir, files)
        for (const { file, id } of found) {
          const { uid } = file.get()
          if (uid !== undefined) yield* runtime.reserveUser(id, uid)
        }
        yield* Effect.orDie(holdKept(servers_dir, runtime, isAside))
        for (const dir of [options.lost_dir, besideServers(servers_dir)]) {
          yield* Effect.orDie(holdKept(dir, runtime))
        }
        const known = new Set(found.map((server) => server.id))
        for (const name of yield* runtime.alive) {
          if (known.has(name)) continue
          yield* Effect.logInfo(`ending what is left of ${name}`)
          yield* runtime.sweep(name)
        }
        for (const server of found) yield* open(server.folder, server.file)
        yield* Effect.forEach(entries.values(), (entry) => entry.instance.adopted, {
          concurrency: "unbounded",
          discard: true
        }).pipe(Effect.timeoutOption(ADOPTION_PATIENCE))
        yield* installer.collect
        yield* watchDisks({
          files,
          instances: () => [...entries.values()].map(({ instance }) => instance),
          seconds: options.disk_check_seconds ?? 30
        }).pipe(Effect.forkScoped)

        return Instances.of({
          list: () => [...entries.values()].map((entry) => daemonServer(entry.instance.file.get())),
          get,
          arrivalOf: (id) => entries.get(id)?.instance.file.get().spec.arrival,
          create: createOnce,
          remove,
          connect: (link) => Effect.asVoid(Deferred.succeed(uplink, link)),
          stopAll: (wait_seconds) =>
            Effect.forEach([...entries.values()], (entry) => stop(entry.instance, wait_seconds), {
              concurrency: "unbounded",
              discard: true
            })
        })
      })
    )
}

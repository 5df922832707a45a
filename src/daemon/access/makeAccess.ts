/** The access of the control plane to the files of servers on this node (spec 10). Read first: `Site.ts`. */
import { Effect, type Scope, Stream } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import {
  type FileError,
  FileRefused,
  type NodeFiles,
  type WriteFile
} from "../../contract/nodeApi/NodeFiles.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { uploadIds } from "../files/uploadFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import type { Instances } from "../instances/Instances.ts"
import { archiveOf } from "./archive.ts"
import { applyChange, isLarge, type Scene } from "./changes.ts"
import { readContents, writeContents } from "./contents.ts"
import { differences } from "./diff.ts"
import { listFolder, statEntry } from "./entries.ts"
import { type AccessError, toFileError } from "./refused.ts"
import type { Site } from "./Site.ts"
import { makeScenes, makeSite } from "./scenes.ts"
import { searchFiles } from "./search.ts"
import { openSession } from "./session.ts"
import type { Tasks } from "./tasks.ts"
import { makeUploads } from "./uploads.ts"

/** Longest wait for bytes of a file that is written. */
const STALLED = "60 seconds"
const MOST_LISTED = 1000

const stalled = new FileRefused({
  status: 409,
  detail: "the transfer was ended: no byte arrived for 60 s",
  hint: "Send the file again."
})

const interrupted = new FileRefused({
  status: 409,
  detail: "the transfer was interrupted",
  hint: "Send the file again."
})

const refuse = (detail: string) =>
  new DaemonRefused({ status: 409, detail, hint: "Wait until it is done, then try again." })

/** Returns why callers cannot reach the files of a server now, if so. */
export const whyClosed = (instance: Instance): DaemonRefused | undefined => {
  const { closed } = instance.accesses
  return closed === undefined ? whyBusy(instance) : refuse(closed)
}

/** Returns why the files of a server cannot be used now, also by a task that has them for itself. */
export const whyBusy = (instance: Instance): DaemonRefused | undefined => {
  const { held, install, status, work } = instance.file.get()
  if (instance.isShutDown) return refuse("the server is being removed")
  if (held === true) return refuse("the server is migrating")
  if (work === "reset") return refuse("the server is being reset")
  if (work !== "none" || status === "installing") return refuse("the server is being installed")
  if (install.phase !== "ready") return refuse("the server is not installed")
  return undefined
}

/** Gives bytes that arrive to an access. Their own failure is that of the call. */
export const taking = <A, E, E2>(
  bytes: Stream.Stream<Uint8Array, E>,
  access: (given: Stream.Stream<Uint8Array, AccessError>) => Effect.Effect<A, E2>
) =>
  Effect.suspend(() => {
    let failed: { readonly error: E } | undefined
    const given = Stream.mapError(bytes, (error) => {
      failed = { error }
      return interrupted
    }).pipe(Stream.timeoutOrElse({ duration: STALLED, orElse: () => Stream.fail(stalled) }))
    return Effect.mapError(access(given), (error) => failed?.error ?? error)
  })

const serversWithUploads = (instances: Instances["Service"]) =>
  Effect.suspend(() =>
    Effect.filter(
      instances.list().map(({ id }) => id),
      (id) =>
        Effect.flatMap(instances.get(id), ({ folder }) => uploadIds(folder)).pipe(
          Effect.map((ids) => ids.length > 0),
          Effect.orElseSucceed(() => false)
        )
    )
  )

export const makeAccess = (
  files: InstanceFiles["Service"],
  instances: Instances["Service"],
  tasks: Tasks
): NodeFiles & { readonly uploads: ReturnType<typeof makeUploads> } => {
  const makeScene = makeScenes(files)

  /** Runs an access to the files of a server. */
  const use = <A>(
    id: ServerId,
    path: string,
    access: (scene: Scene) => Effect.Effect<A, AccessError, Scope.Scope>
  ): Effect.Effect<A, FileError> =>
    Effect.gen(function* () {
      const instance = yield* instances.get(id)
      return yield* instance.accesses.run(
        () => whyClosed(instance),
        Effect.flatMap(makeScene(instance), access)
      )
    }).pipe(Effect.mapError(toFileError(path)))

  /** Runs an access that walks many files, of which a server has few at a time. */
  const searched: typeof use = (id, path, access) =>
    Effect.flatMap(Effect.mapError(instances.get(id), toFileError(path)), ({ accesses }) =>
      accesses.searching(use(id, path, access))
    )

  const stream = (
    id: ServerId,
    path: string,
    access: (site: Site) => Effect.Effect<Stream.Stream<Uint8Array, AccessError>, AccessError, Scope.Scope>,
    isArchive = false
  ): Effect.Effect<Stream.Stream<Uint8Array, FileError>, FileError, Scope.Scope> =>
    Effect.gen(function* () {
      const instance = yield* instances.get(id)
      return yield* instance.accesses.stream(
        () => whyClosed(instance),
        Effect.flatMap(makeSite(files, instance), access),
        isArchive
      )
    }).pipe(Effect.map(Stream.mapError(toFileError(path))), Effect.mapError(toFileError(path)))

  return {
    list: Effect.fn("NodeFiles.list")((id, request) => {
      const limit = Math.min(MOST_LISTED, Math.max(1, request.limit))
      return use(id, request.path, ({ site }) => listFolder(site, { ...request, limit }))
    }),
    stat: Effect.fn("NodeFiles.stat")((id, path) => use(id, path, ({ site }) => statEntry(site, path))),
    read: Effect.fn("NodeFiles.read")((id, request) =>
      stream(id, request.path, (site) => Effect.map(readContents(site, request), ({ bytes }) => bytes))
    ),
    write: <E>(id: ServerId, request: WriteFile, bytes: Stream.Stream<Uint8Array, E>) =>
      taking(bytes, (given) => use(id, request.path, (scene) => writeContents(scene, request, given))).pipe(
        Effect.withSpan("NodeFiles.write")
      ),
    receive: <E>(
      id: ServerId,
      { operation_id, task }: Parameters<NodeFiles["receive"]>[1],
      bytes: Stream.Stream<Uint8Array, E>
    ) =>
      taking(bytes, (given) =>
        Effect.flatMap(Effect.mapError(instances.get(id), toFileError("/")), (instance) =>
          tasks.receive(instance, operation_id, task, {
            bytes: given,
            use: (access) => use(id, task.to, access)
          })
        )
      ).pipe(Effect.withSpan("NodeFiles.receive")),
    uploads: makeUploads(use, taking, serversWithUploads(instances)),
    change: Effect.fn("NodeFiles.change")((id, changes) =>
      use(
        id,
        "/",
        Effect.fnUntraced(function* (scene) {
          if (yield* isLarge(scene.site, changes)) return "large"
          return yield* Effect.forEach(changes, (change) =>
            Effect.match(applyChange(scene, change), {
              onSuccess: () => undefined,
              onFailure: toFileError(change.path)
            })
          )
        })
      )
    ),
    session: Effect.fn("NodeFiles.session")(function* (id) {
      const instance = yield* Effect.mapError(instances.get(id), toFileError("/"))
      return yield* openSession({
        instance,
        files,
        whyClosed: () => whyClosed(instance),
        use: (path, access) => use(id, path, access)
      })
    }),
    archive: Effect.fn("NodeFiles.archive")((id, request) =>
      stream(id, request.paths[0] ?? "/", (site) => archiveOf(site, request), true)
    ),
    search: Effect.fn("NodeFiles.search")((id, request) =>
      searched(id, request.path, ({ site }) => searchFiles(site, request))
    ),
    diff: Effect.fn("NodeFiles.diff")((id) => searched(id, "/", ({ site }) => differences(site))),
    begin: Effect.fn("NodeFiles.begin")(function* (id, { operation_id, task }) {
      return yield* tasks.begin(yield* instances.get(id), operation_id, task, (access) =>
        use(id, "/", access)
      )
    }),
    progress: Effect.fn("NodeFiles.progress")(function* (id, operation_id) {
      return yield* tasks.progress(yield* instances.get(id), operation_id)
    }),
    cancel: Effect.fn("NodeFiles.cancel")(function* (id, { operation_id, task }) {
      yield* tasks.cancel(yield* instances.get(id), operation_id, task, (access) => use(id, "/", access))
    })
  }
}

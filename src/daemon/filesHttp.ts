/** The routes of {@link NodeFiles} on the daemon (spec 10.5). */
import { Effect, References, Stream } from "effect"
import type { HttpServerRequest } from "effect/http"
import { Conflict, InternalError, Unavailable } from "../contract/domain/errors.ts"
import type { Daemon } from "../contract/nodeApi/Daemon.ts"
import { DaemonApi } from "../contract/nodeApi/DaemonApi.ts"
import type { FileError } from "../contract/nodeApi/NodeFiles.ts"
import { refusalError } from "../contract/nodeApi/NodeFilesApi.ts"
import { type UploadError, uploadRefusalError } from "../contract/nodeApi/NodeUploadsApi.ts"
import { handlersOf } from "../shared/net/requestServices.ts"
import { serveSession } from "./access/sessionHttp.ts"
import { ServedDaemon } from "./http.ts"

export const httpError = (error: FileError) => {
  if (error._tag === "NodeUnreachable") return Unavailable.nodeNotConnected(error.node_id)
  const { detail, hint, status } = error
  return status === 500 ? new InternalError({ detail, hint }) : refusalError({ status, detail, hint })
}

const outcomeOf = (error: FileError | undefined) => {
  if (error === undefined) return {}
  if (error._tag !== "NodeUnreachable") {
    const { detail, hint, status } = error
    return { refused: { status, detail, hint } }
  }
  const { detail, hint } = Unavailable.nodeNotConnected(error.node_id)
  return { refused: { status: 500, detail, hint } }
}

/** The body of a request ended before its last byte. */
const bodyLost = new Conflict({ detail: "the transfer was interrupted", hint: "Send the file again." })

const bodyOf = (request: HttpServerRequest.HttpServerRequest) =>
  Stream.mapError(request.stream, () => bodyLost)

/** Makes calls of a part of the daemon, once it is ready, whose work must not log with the annotations of their request. */
const makeCall = <P, F, H>(part: (daemon: Daemon) => P, toHttp: (error: F) => H) =>
  Effect.map(
    ServedDaemon,
    (served) =>
      <A, R>(use: (of: P) => Effect.Effect<A, F | Conflict, R>) =>
        Effect.flatMap(served.daemon, (daemon) => use(part(daemon))).pipe(
          Effect.provideService(References.CurrentLogAnnotations, {}),
          Effect.mapError((error) => (error instanceof Conflict ? error : toHttp(error)))
        )
  )

/** The routes of {@link NodeBackups} on the daemon (spec 12.3). */
export const NodeBackupsHandlers = handlersOf(
  DaemonApi,
  "nodeBackups",
  Effect.fn(function* (handlers) {
    const call = yield* makeCall(({ backups }) => backups, httpError)
    return handlers.handleAll({
      work: ({ params, payload }) => call((backups) => backups.work(params.id, payload)),
      receive: ({ params, query: { backup_id, operation_id, part, ...archive }, request }) =>
        call((backups) => {
          const restored = part === undefined ? {} : { part }
          const task = { kind: "restore", backup_id, archive, arrives: true, ...restored } as const
          return backups.receive(params.id, { operation_id, task, target: { type: "node" } }, bodyOf(request))
        }),
      cancel: ({ params, payload }) => call((backups) => backups.cancel(params.id, payload)),
      remove: ({ params, payload }) => call((backups) => backups.remove(params.backup, payload.target)),
      archive: ({ params, payload: { range, ...stored } }) =>
        call((backups) => backups.archive({ id: params.backup, ...stored }, range)),
      look: ({ params, payload: { at, ...stored } }) =>
        call((backups) => backups.look({ id: params.backup, ...stored }, at)),
      contents: ({ params, payload: { file, ...stored } }) =>
        call((backups) => backups.contents({ id: params.backup, ...stored }, file)),
      definition: ({ params, payload }) =>
        call((backups) => backups.definition({ id: params.backup, ...payload })),
      index: ({ params, payload }) => call((backups) => backups.index({ id: params.backup, ...payload })),
      compare: ({ params, query, request }) =>
        call((backups) => backups.compare(params.id, query, bodyOf(request))),
      test: ({ payload }) => call((backups) => backups.test(payload.target))
    })
  })
)

export const NodeFilesHandlers = handlersOf(
  DaemonApi,
  "nodeFiles",
  Effect.fn(function* (handlers) {
    const served = yield* ServedDaemon
    const call = yield* makeCall(({ files }) => files, httpError)
    return handlers
      .handleAll({
        list: ({ params, query: { after, limit, path, sizes } }) =>
          call((files) =>
            files.list(params.id, {
              path,
              ...(after === undefined ? {} : { after }),
              limit: limit ?? 1000,
              sizes: sizes === "true"
            })
          ),
        entry: ({ params, query }) => call((files) => files.stat(params.id, query.path)),
        read: ({ params, query }) => call((files) => files.read(params.id, { ...query, isTransient: true })),
        write: ({ params, query, request }) =>
          call((files) => files.write(params.id, { ...query, isOwned: true }, bodyOf(request))),
        receive: ({ params, query: { operation_id, ...query }, request }) =>
          call((files) =>
            files.receive(params.id, { operation_id, task: { kind: "unpack", ...query } }, bodyOf(request))
          ),
        change: ({ params, payload }) =>
          Effect.map(
            call((files) => files.change(params.id, payload.changes)),
            (outcomes) => (outcomes === "large" ? {} : { outcomes: outcomes.map(outcomeOf) })
          ),
        begin: ({ params, payload }) => call((files) => files.begin(params.id, payload)),
        progress: ({ params }) => call((files) => files.progress(params.id, params.operation)),
        cancel: ({ params, payload }) => call((files) => files.cancel(params.id, payload)),
        archive: ({ params, payload }) => call((files) => files.archive(params.id, payload)),
        search: ({ params, payload }) => call((files) => files.search(params.id, payload)),
        diff: ({ params }) =>
          Effect.map(
            call((files) => files.diff(params.id)),
            (differences) => ({ differences })
          )
      })
      .handle(
        "session",
        Effect.fnUntraced(function* ({ params, request }) {
          const { files } = yield* served.daemon
          const session = yield* Effect.mapError(files.session(params.id), httpError)
          return yield* serveSession(request, session)
        }, Effect.scoped)
      )
  })
)

const failureOf = (error: UploadError) =>
  error._tag === "UploadRefused" ? uploadRefusalError(error) : httpError(error)

export const NodeUploadsHandlers = handlersOf(
  DaemonApi,
  "nodeUploads",
  Effect.fn(function* (handlers) {
    const call = yield* makeCall(({ files }) => files.uploads, failureOf)
    const callOfAll = yield* makeCall(({ files }) => files.uploads, httpError)
    return handlers.handleAll({
      begin: ({ params, payload }) => call((uploads) => uploads.begin(params.id, payload)),
      find: ({ params, query }) =>
        call((uploads) => uploads.find(params.id, { upload_id: params.upload, ...query })),
      append: ({ params, query, request }) =>
        call((uploads) => uploads.append(params.id, { upload_id: params.upload, ...query }, bodyOf(request))),
      end: ({ params, query }) =>
        call((uploads) => uploads.end(params.id, { upload_id: params.upload, ...query })),
      endOf: ({ payload }) => callOfAll((uploads) => uploads.endOf(payload.owners))
    })
  })
)

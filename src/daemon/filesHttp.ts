/** The routes of {@link NodeFiles} on the daemon (spec 10.5). */
import { Effect, References, Stream } from "effect"
import { Conflict, InternalError, Unavailable } from "../contract/domain/errors.ts"
import type { Daemon } from "../contract/nodeApi/Daemon.ts"
import { DaemonApi } from "../contract/nodeApi/DaemonApi.ts"
import type { NodeBackups } from "../contract/nodeApi/NodeBackups.ts"
import type { FileError, NodeFiles } from "../contract/nodeApi/NodeFiles.ts"
import { refusalError } from "../contract/nodeApi/NodeFilesApi.ts"
import { type NodeUploads, type UploadError, uploadRefusalError } from "../contract/nodeApi/NodeUploadsApi.ts"
import { handlersOf } from "../shared/net/requestServices.ts"
import { serveSession } from "./access/sessionHttp.ts"
import { ServedDaemon } from "./ServedDaemon.ts"

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

/** The daemon, once it is ready, for calls whose work must not log with the annotations of their request. */
const makeAsk = Effect.map(
  ServedDaemon,
  (served) =>
    <A, E, R>(use: (daemon: Daemon) => Effect.Effect<A, E, R>) =>
      Effect.provideService(Effect.flatMap(served.daemon, use), References.CurrentLogAnnotations, {})
)

/** The routes of {@link NodeBackups} on the daemon (spec 12.3). */
export const NodeBackupsHandlers = handlersOf(
  DaemonApi,
  "nodeBackups",
  Effect.fn(function* (handlers) {
    const ask = yield* makeAsk
    const call = <A, R>(use: (backups: NodeBackups) => Effect.Effect<A, FileError, R>) =>
      Effect.mapError(
        ask(({ backups }) => use(backups)),
        httpError
      )
    return handlers.handleAll({
      work: ({ params, payload }) => call((backups) => backups.work(params.id, payload)),
      receive: ({ params, query: { backup_id, operation_id, part, ...archive }, request }) =>
        ask(({ backups }) =>
          backups.receive(
            params.id,
            {
              operation_id,
              task: {
                kind: "restore",
                backup_id,
                archive,
                arrives: true,
                ...(part === undefined ? {} : { part })
              },
              target: { type: "node" }
            },
            Stream.mapError(request.stream, () => bodyLost)
          )
        ).pipe(Effect.mapError((error) => (error instanceof Conflict ? error : httpError(error)))),
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
        ask(({ backups }) =>
          backups.compare(
            params.id,
            query,
            Stream.mapError(request.stream, () => bodyLost)
          )
        ).pipe(Effect.mapError((error) => (error instanceof Conflict ? error : httpError(error)))),
      test: ({ payload }) => call((backups) => backups.test(payload.target))
    })
  })
)

/** The body of a request ended before its last byte. */
export const bodyLost = new Conflict({ detail: "the transfer was interrupted", hint: "Send the file again." })

export const NodeFilesHandlers = handlersOf(
  DaemonApi,
  "nodeFiles",
  Effect.fn(function* (handlers) {
    const served = yield* ServedDaemon
    const askAny = yield* makeAsk
    const ask = <A, E, R>(use: (files: NodeFiles) => Effect.Effect<A, E, R>) =>
      askAny(({ files }) => use(files))
    const call = <A, R>(use: (files: NodeFiles) => Effect.Effect<A, FileError, R>) =>
      Effect.mapError(ask(use), httpError)
    /** As `call`, with the body of the request. */
    const take = <A, R>(use: (files: NodeFiles) => Effect.Effect<A, FileError | Conflict, R>) =>
      Effect.mapError(ask(use), (error) => (error instanceof Conflict ? error : httpError(error)))
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
          take((files) =>
            files.write(
              params.id,
              { ...query, isOwned: true },
              Stream.mapError(request.stream, () => bodyLost)
            )
          ),
        receive: ({ params, query: { operation_id, ...query }, request }) =>
          take((files) =>
            files.receive(
              params.id,
              { operation_id, task: { kind: "unpack", ...query } },
              Stream.mapError(request.stream, () => bodyLost)
            )
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
    const served = yield* ServedDaemon
    const ask = <A, E, R>(use: (uploads: NodeUploads) => Effect.Effect<A, E, R>) =>
      Effect.provideService(
        Effect.flatMap(served.daemon, ({ files }) => use(files.uploads)),
        References.CurrentLogAnnotations,
        {}
      )
    return handlers.handleAll({
      begin: ({ params, payload }) =>
        Effect.mapError(
          ask((uploads) => uploads.begin(params.id, payload)),
          failureOf
        ),
      find: ({ params, query }) =>
        Effect.mapError(
          ask((uploads) => uploads.find(params.id, { upload_id: params.upload, ...query })),
          failureOf
        ),
      append: ({ params, query, request }) =>
        ask((uploads) =>
          uploads.append(
            params.id,
            { upload_id: params.upload, ...query },
            Stream.mapError(request.stream, () => bodyLost)
          )
        ).pipe(Effect.mapError((error) => (error instanceof Conflict ? error : failureOf(error)))),
      end: ({ params, query }) =>
        Effect.mapError(
          ask((uploads) => uploads.end(params.id, { upload_id: params.upload, ...query })),
          failureOf
        ),
      endOf: ({ payload }) =>
        Effect.mapError(
          ask((uploads) => uploads.endOf(payload.owners)),
          httpError
        )
    })
  })
)

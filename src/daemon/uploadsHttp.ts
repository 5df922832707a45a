/** The routes of {@link NodeUploads} on the daemon (spec 10.8). */
import { Effect, References, Stream } from "effect"
import { Conflict } from "../contract/domain/errors.ts"
import { DaemonApi } from "../contract/nodeApi/DaemonApi.ts"
import { type NodeUploads, type UploadError, uploadRefusalError } from "../contract/nodeApi/NodeUploadsApi.ts"
import { handlersOf } from "../shared/net/requestServices.ts"
import { bodyLost, httpError } from "./filesHttp.ts"
import { ServedDaemon } from "./ServedDaemon.ts"

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

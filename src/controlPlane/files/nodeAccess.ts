/** Calls to the files of a server on its node, with the errors that callers get (spec 10.3). */
import { Effect, Result } from "effect"
import { RequestId } from "../../contract/domain/ApiError.ts"
import {
  type InsufficientStorage,
  NodeFailure,
  type PreconditionFailed,
  type RangeNotSatisfiable,
  type TooManyRequests
} from "../../contract/domain/errors.ts"
import type { FileChange } from "../../contract/domain/Files.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { BulkOutcomes } from "../../contract/domain/Selector.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { Daemon } from "../../contract/nodeApi/Daemon.ts"
import type { FileError, FileRefused, NodeFiles } from "../../contract/nodeApi/NodeFiles.ts"
import { refusalError } from "../../contract/nodeApi/NodeFilesApi.ts"
import { LimitReached } from "../http/rateLimit.ts"
import type { BulkFailure } from "../servers/ServerManager.ts"
import { makeNodeCalls, makeNodeErrors } from "../servers/state/nodeCalls.ts"

/** Milliseconds after which a download that nothing reads makes room for another one (spec 10.3). */
const RETRY_AFTER = 5_000

/** The refusal of a condition, a range, an archive or bytes that the call did not have. */
export const unasked = ({
  detail,
  hint
}: InsufficientStorage | PreconditionFailed | RangeNotSatisfiable | TooManyRequests) =>
  Effect.fail(new NodeFailure({ detail, hint }))

/** The files of servers, wherever these are. */
export const makeNodeAccess = Effect.gen(function* () {
  const { call, recordOf, refuseMoving } = yield* makeNodeCalls
  const { failWith } = yield* makeNodeErrors

  /** Calls the node of a server. Its refusals are those of the route. */
  const ask = Effect.fnUntraced(function* <A, R>(
    record: ServerRecord,
    use: (daemon: Daemon) => Effect.Effect<A, FileError, R>
  ) {
    const result = yield* call(record, (daemon) =>
      use(daemon).pipe(
        Effect.map((value): Result.Result<A, FileRefused> => Result.succeed(value)),
        Effect.catchTag("FileRefused", (refusal) => Effect.succeed(Result.fail(refusal)))
      )
    )
    return Result.isSuccess(result) ? result.success : yield* refusalError(result.failure)
  })

  /** Calls the node of a server, with conditions and ranges. @error Conflict the server migrates */
  const onContent = Effect.fnUntraced(function* <A, R>(
    id: ServerId,
    use: (files: NodeFiles, record: ServerRecord) => Effect.Effect<A, FileError, R>
  ) {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    return yield* ask(record, ({ files }) => use(files, record))
  })

  /** Calls the node of a server. @error Conflict the server migrates */
  const on = <A, R>(
    id: ServerId,
    use: (files: NodeFiles, record: ServerRecord) => Effect.Effect<A, FileError, R>
  ) =>
    Effect.catchTags(onContent(id, use), {
      PreconditionFailed: unasked,
      RangeNotSatisfiable: unasked,
      TooManyRequests: unasked
    })

  /** As {@link on}, for work that a node bounds. @error LimitReached the bound is reached (429) */
  const limited = <A, R>(
    id: ServerId,
    limit: number,
    use: (files: NodeFiles) => Effect.Effect<A, FileError, R>
  ) =>
    Effect.catchTags(onContent(id, use), {
      PreconditionFailed: unasked,
      RangeNotSatisfiable: unasked,
      TooManyRequests: ({ detail, hint }) =>
        Effect.fail(new LimitReached({ detail, hint, limit, resetAfter: RETRY_AFTER }))
    })

  /** Makes changes in order; returns the outcome of each by its path, or `large` if they are more than one request makes. */
  const change = Effect.fnUntraced(function* (id: ServerId, changes: ReadonlyArray<FileChange>) {
    const request_id = (yield* RequestId) ?? ""
    const outcomeOf = (
      record: ServerRecord,
      error: FileError | undefined
    ): Effect.Effect<BulkOutcomes[string]> => {
      if (error === undefined) return Effect.succeed({ status: 200 })
      const failure: Effect.Effect<BulkFailure> =
        error._tag === "FileRefused"
          ? Effect.succeed(refusalError(error))
          : Effect.flip(failWith(record, error))
      return Effect.map(failure, ({ code, detail, hint, status }) => ({
        code,
        status,
        detail,
        hint,
        request_id
      }))
    }
    const outcomes = yield* on(
      id,
      Effect.fnUntraced(function* (files, record) {
        const made = yield* files.change(id, changes)
        return made === "large" ? made : yield* Effect.forEach(made, (error) => outcomeOf(record, error))
      })
    )
    if (outcomes === "large") return outcomes
    return Object.fromEntries(
      outcomes.flatMap((outcome, index) => {
        const made = changes[index]
        return made === undefined ? [] : [[made.path, outcome] as const]
      })
    )
  })

  return { ask, on, onContent, limited, change, recordOf } as const
})

/** The files of servers on a remote node (spec 10.5). */
import { Clock, Duration, Effect, Result, Stream } from "effect"
import type { BodyTooLarge, ChecksumMismatch, Locked } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { cleanText } from "../../../contract/domain/NodeText.ts"
import { type DaemonError, NodeUnreachable } from "../../../contract/nodeApi/Daemon.ts"
import type { NodeBackups } from "../../../contract/nodeApi/NodeBackups.ts"
import { FileRefused, type NodeFiles } from "../../../contract/nodeApi/NodeFiles.ts"
import { refusalErrors } from "../../../contract/nodeApi/NodeFilesApi.ts"
import { type NodeUploads, refusalAsResult, UploadRefused } from "../../../contract/nodeApi/NodeUploadsApi.ts"
import { elapsedMillisOf } from "../../../shared/work/elapsed.ts"
import type { DaemonCalls } from "./RemoteDaemon.ts"
import type { CallFailure } from "./remoteCall.ts"

/** Bounds of answers, in bytes: a daemon ends a page of a folder before this. */
const LARGEST_PAGE = 4 * 1024 * 1024
const LARGEST_LIST = 16 * 1024 * 1024

/** Longest time without a byte, in ms. The end of a write takes longer: its last bytes go to the disk. */
const STALL_MILLIS = 60_000
const END_MILLIS = 120_000
/** Copies and deletions of trees. */
const CHANGES = Duration.minutes(10)
const SEARCH = Duration.seconds(30)
/** An index of a backup that comes from a bucket. */
const LOOK = Duration.minutes(2)

type Refusal = InstanceType<(typeof refusalErrors)[keyof typeof refusalErrors]>

const isStatus = (status: number): status is FileRefused["status"] => status in refusalErrors

const isRefusal = (error: CallFailure | Refusal): error is Refusal =>
  "code" in error && isStatus(Number(error.code))

const refusedWith = (
  status: FileRefused["status"],
  { detail, hint }: { readonly detail: string; readonly hint: string }
) => new FileRefused({ status, detail: cleanText(detail), hint: cleanText(hint) })

/** Makes a refusal of the daemon a result: the node has answered. */
const answered = <A>(
  call: Effect.Effect<A, CallFailure | Refusal>
): Effect.Effect<Result.Result<A, FileRefused>, CallFailure> =>
  Effect.matchEffect(call, {
    onSuccess: (value) => Effect.succeed(Result.succeed(value)),
    onFailure: (error) => {
      if (!isRefusal(error)) return Effect.fail(error)
      const status = Number(error.code)
      return Effect.succeed(Result.fail(refusedWith(isStatus(status) ? status : 422, error)))
    }
  })

export interface FileCalls {
  readonly unreachable: NodeUnreachable
  /** Calls the daemon; the answer has at most `largest` bytes unless it is a stream. */
  readonly call: <A>(
    isRepeatable: boolean,
    use: (client: DaemonCalls) => Effect.Effect<A, CallFailure>,
    options?: { readonly largest?: number; readonly deadline?: Duration.Duration }
  ) => Effect.Effect<A, DaemonError>
}

/** The source of a body, and whether the receiver takes its bytes. */
const makeWatched = <E>(bytes: Stream.Stream<Uint8Array, E>, clock: Clock.Clock) => {
  let failed: { readonly error: E } | undefined
  let isWaiting = false
  let hasEnded = false
  let since = elapsedMillisOf(clock)
  const mark = (waits: boolean) => {
    isWaiting = waits
    since = elapsedMillisOf(clock)
  }
  const noted = Stream.tapError(bytes, (error) =>
    Effect.sync(() => {
      failed = { error }
    })
  )
  const counted = Stream.transformPull(noted, (pull) =>
    Effect.succeed(
      Effect.suspend(() => {
        mark(true)
        return Effect.ensuring(
          pull,
          Effect.sync(() => mark(false))
        )
      })
    )
  )
  const ended = Effect.sync(() => {
    hasEnded = true
  })
  const watched = Stream.concat(counted, Stream.drain(Stream.fromEffect(ended)))
  /** Returns once the receiver has taken no byte for too long. */
  const stalled = Effect.gen(function* () {
    for (;;) {
      const limit = hasEnded ? END_MILLIS : STALL_MILLIS
      const left = isWaiting ? limit : since + limit - elapsedMillisOf(clock)
      if (left <= 0) return
      yield* Effect.sleep(left)
    }
  })
  return { watched, stalled, failed: () => failed }
}

/** Calls a daemon whose refusals are results, and reads its streams. */
const makeAsking = ({ call, unreachable }: FileCalls) => {
  const stalledDownload = new NodeUnreachable({
    node_id: unreachable.node_id,
    reason: "no byte arrived for 60 s"
  })
  return {
    ask: <A>(
      isRepeatable: boolean,
      use: (client: DaemonCalls) => Effect.Effect<A, CallFailure | Refusal>,
      options?: { readonly largest?: number; readonly deadline?: Duration.Duration }
    ) =>
      Effect.flatMap(
        call(isRepeatable, (client) => answered(use(client)), options),
        Effect.fromResult
      ),
    received: <E>(stream: Stream.Stream<Uint8Array, E>) =>
      stream.pipe(
        Stream.mapError((): DaemonError => unreachable),
        Stream.timeoutOrElse({ duration: STALL_MILLIS, orElse: () => Stream.fail(stalledDownload) })
      )
  }
}

/** The backups of a remote node (spec 12.3). */
export const makeRemoteBackups = (calls: FileCalls): NodeBackups => {
  const { ask, received } = makeAsking(calls)
  const send = makeSend(calls)
  return {
    receive: (id, { operation_id, task }, bytes) => {
      if (task.kind !== "restore") return Effect.die("only a restore has an archive that arrives")
      const part = task.part === undefined ? {} : { part: task.part }
      const query = { operation_id, backup_id: task.backup_id, ...task.archive, ...part }
      return send(id, bytes, ({ nodeBackups }, payload) =>
        nodeBackups.receive({ params: { id }, query, payload })
      )
    },
    work: (id, payload) => ask(true, ({ nodeBackups }) => nodeBackups.work({ params: { id }, payload })),
    cancel: (id, payload) => ask(true, ({ nodeBackups }) => nodeBackups.cancel({ params: { id }, payload })),
    remove: (backup, target) =>
      ask(true, ({ nodeBackups }) => nodeBackups.remove({ params: { backup }, payload: { target } })),
    archive: ({ id: backup, ...stored }, range) =>
      Effect.map(
        ask(true, ({ nodeBackups }) =>
          nodeBackups.archive({
            params: { backup },
            payload: { ...stored, ...(range === undefined ? {} : { range }) }
          })
        ),
        received
      ),
    look: ({ id: backup, ...stored }, at) =>
      ask(true, ({ nodeBackups }) => nodeBackups.look({ params: { backup }, payload: { ...stored, at } }), {
        largest: LARGEST_LIST,
        deadline: LOOK
      }),
    contents: ({ id: backup, ...stored }, file) =>
      Effect.map(
        ask(true, ({ nodeBackups }) =>
          nodeBackups.contents({ params: { backup }, payload: { ...stored, file } })
        ),
        received
      ),
    definition: ({ id: backup, ...payload }) =>
      ask(true, ({ nodeBackups }) => nodeBackups.definition({ params: { backup }, payload }), {
        largest: LARGEST_LIST,
        deadline: LOOK
      }),
    index: ({ id: backup, ...payload }) =>
      Effect.map(
        ask(true, ({ nodeBackups }) => nodeBackups.index({ params: { backup }, payload })),
        received
      ),
    compare: (id, query, bytes) =>
      send(id, bytes, ({ nodeBackups }, payload) => nodeBackups.compare({ params: { id }, query, payload })),
    test: (target) => ask(true, ({ nodeBackups }) => nodeBackups.test({ payload: { target } }))
  }
}

/** Returns a call with a body of any size, which ends once the daemon takes no byte for too long. */
const makeSend = ({ call, unreachable }: FileCalls) =>
  Effect.fnUntraced(function* <A, E>(
    id: ServerId,
    bytes: Stream.Stream<Uint8Array, E>,
    use: (
      client: DaemonCalls,
      payload: Stream.Stream<Uint8Array, E>
    ) => Effect.Effect<A, CallFailure | Refusal>
  ) {
    // The bytes can be sent once only: an outdated token is replaced before.
    yield* call(true, (client) => client.status({ params: { id } }))
    const { failed, stalled, watched } = makeWatched(bytes, yield* Clock.Clock)
    const sent = call(
      false,
      (client) =>
        answered(use(client, watched)).pipe(
          // The source of the bytes has failed, not the node.
          Effect.catchIf(
            () => failed() !== undefined,
            () => Effect.succeed(undefined)
          )
        ),
      { deadline: Duration.infinity }
    )
    const tooLate = Effect.andThen(
      stalled,
      Effect.fail(new NodeUnreachable({ node_id: unreachable.node_id, reason: "it took no byte for 60 s" }))
    )
    const outcome = yield* Effect.raceFirst(sent, tooLate)
    const source = failed()
    if (source !== undefined) return yield* Effect.fail(source.error)
    return outcome === undefined ? yield* unreachable : yield* Effect.fromResult(outcome)
  })

type UploadFailure = CallFailure | Refusal | BodyTooLarge | Locked | ChecksumMismatch

const bytesRefused =
  (status: UploadRefused["status"]) =>
  ({ detail, hint }: BodyTooLarge | Locked | ChecksumMismatch) =>
    new UploadRefused({ status, detail: cleanText(detail), hint: cleanText(hint) })

/** Makes a refusal of bytes a result: the node has answered. */
const bytesAnswered = <A>(call: Effect.Effect<A, UploadFailure>) =>
  refusalAsResult(
    Effect.catchTags(call, {
      BodyTooLarge: bytesRefused(413),
      Locked: bytesRefused(423),
      ChecksumMismatch: bytesRefused(460)
    })
  )

/** The uploads to servers on a remote node (spec 10.8). */
const makeRemoteUploads = (calls: FileCalls): NodeUploads => {
  const { ask } = makeAsking(calls)
  const send = makeSend(calls)
  return {
    begin: (id, payload) =>
      ask(true, ({ nodeUploads }) => bytesAnswered(nodeUploads.begin({ params: { id }, payload }))).pipe(
        Effect.flatMap(Effect.fromResult)
      ),
    find: (id, { owner, upload_id: upload }) =>
      ask(true, ({ nodeUploads }) =>
        bytesAnswered(nodeUploads.find({ params: { id, upload }, query: { owner } }))
      ).pipe(Effect.flatMap(Effect.fromResult)),
    append: (id, { upload_id: upload, ...query }, bytes) =>
      send(id, bytes, ({ nodeUploads }, payload) =>
        bytesAnswered(nodeUploads.append({ params: { id, upload }, query, payload }))
      ).pipe(Effect.flatMap(Effect.fromResult)),
    end: (id, { owner, upload_id: upload }) =>
      ask(true, ({ nodeUploads }) =>
        bytesAnswered(nodeUploads.end({ params: { id, upload }, query: { owner } }))
      ).pipe(Effect.flatMap(Effect.fromResult)),
    endOf: (owners) => ask(true, ({ nodeUploads }) => nodeUploads.endOf({ payload: { owners } }))
  }
}

export const makeRemoteFiles = (calls: FileCalls): Omit<NodeFiles, "session"> => {
  const { unreachable } = calls
  const { ask: askAny, received } = makeAsking(calls)
  const send = makeSend(calls)
  const ask = <A>(
    isRepeatable: boolean,
    use: (client: DaemonCalls["nodeFiles"]) => Effect.Effect<A, CallFailure | Refusal>,
    options?: { readonly largest?: number; readonly deadline?: Duration.Duration }
  ) => askAny(isRepeatable, ({ nodeFiles }) => use(nodeFiles), options)

  return {
    list: (id, { sizes, ...query }) =>
      ask(
        true,
        (files) => files.list({ params: { id }, query: { ...query, ...(sizes ? { sizes: "true" } : {}) } }),
        { largest: LARGEST_PAGE }
      ),
    stat: (id, path) => ask(true, (files) => files.entry({ params: { id }, query: { path } })),
    read: (id, query) =>
      Effect.map(
        ask(true, (files) => files.read({ params: { id }, query })),
        received
      ),
    write: (id, request, bytes) =>
      send(id, bytes, ({ nodeFiles }, payload) =>
        nodeFiles.write({ params: { id }, query: request, payload })
      ),
    receive: (id, { operation_id, task: { kind: _, ...query } }, bytes) =>
      send(id, bytes, ({ nodeFiles }, payload) =>
        nodeFiles.receive({ params: { id }, query: { operation_id, ...query }, payload })
      ),
    change: (id, changes) =>
      Effect.map(
        ask(false, (files) => files.change({ params: { id }, payload: { changes } }), {
          largest: LARGEST_LIST,
          deadline: CHANGES
        }),
        ({ outcomes }) => {
          if (outcomes === undefined) return "large"
          return changes.map((_, index) => {
            const refused = outcomes[index]?.refused
            if (refused === undefined) return outcomes[index] === undefined ? unreachable : undefined
            const { detail, status } = refused
            return isStatus(status)
              ? refusedWith(status, refused)
              : new NodeUnreachable({ node_id: unreachable.node_id, reason: cleanText(detail) })
          })
        }
      ),
    begin: (id, payload) => ask(true, (files) => files.begin({ params: { id }, payload })),
    progress: (id, operation) => ask(true, (files) => files.progress({ params: { id, operation } })),
    cancel: (id, payload) => ask(true, (files) => files.cancel({ params: { id }, payload })),
    archive: (id, payload) =>
      Effect.map(
        ask(true, (files) => files.archive({ params: { id }, payload })),
        received
      ),
    search: (id, payload) =>
      ask(true, (files) => files.search({ params: { id }, payload }), {
        largest: LARGEST_LIST,
        deadline: SEARCH
      }),
    uploads: makeRemoteUploads(calls),
    diff: (id) =>
      Effect.map(
        ask(true, (files) => files.diff({ params: { id } }), { largest: LARGEST_LIST, deadline: SEARCH }),
        ({ differences }) => differences
      )
  }
}

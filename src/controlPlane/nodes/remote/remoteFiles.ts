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
const LOOK: CallBounds = { largest: LARGEST_LIST, deadline: Duration.minutes(2) }

/** The answer of a call has at most `largest` bytes unless it is a stream. */
interface CallBounds {
  readonly largest?: number
  readonly deadline?: Duration.Duration
}

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
  /** Calls the daemon. */
  readonly call: <A>(
    isRepeatable: boolean,
    use: (client: DaemonCalls) => Effect.Effect<A, CallFailure>,
    options?: CallBounds
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
      options?: CallBounds
    ) =>
      Effect.flatMap(
        call(isRepeatable, (client) => answered(use(client)), options),
        Effect.fromResult
      ),
    /** The bytes of a call that returns them. */
    received: <E, E2>(asked: Effect.Effect<Stream.Stream<Uint8Array, E>, E2>) =>
      Effect.map(asked, (stream) =>
        stream.pipe(
          Stream.mapError((): DaemonError => unreachable),
          Stream.timeoutOrElse({ duration: STALL_MILLIS, orElse: () => Stream.fail(stalledDownload) })
        )
      )
  }
}

/** The backups of a remote node (spec 12.3). */
export const makeRemoteBackups = (calls: FileCalls): NodeBackups => {
  const { ask: askAny, received } = makeAsking(calls)
  const send = makeSend(calls)
  const ask = <A>(
    use: (client: DaemonCalls["nodeBackups"]) => Effect.Effect<A, CallFailure | Refusal>,
    options?: CallBounds
  ) => askAny(true, ({ nodeBackups }) => use(nodeBackups), options)
  return {
    receive: (id, { operation_id, task }, bytes) => {
      if (task.kind !== "restore") return Effect.die("only a restore has an archive that arrives")
      const part = task.part === undefined ? {} : { part: task.part }
      const query = { operation_id, backup_id: task.backup_id, ...task.archive, ...part }
      return send(id, bytes, ({ nodeBackups }, payload) =>
        nodeBackups.receive({ params: { id }, query, payload })
      )
    },
    work: (id, payload) => ask((backups) => backups.work({ params: { id }, payload })),
    cancel: (id, payload) =>
      Effect.map(
        ask((backups) => backups.cancel({ params: { id }, payload })),
        (placed) => placed || undefined
      ),
    remove: (backup, target) => ask((backups) => backups.remove({ params: { backup }, payload: { target } })),
    archive: ({ id: backup, ...stored }, range) => {
      const payload = { ...stored, ...(range === undefined ? {} : { range }) }
      return received(ask((backups) => backups.archive({ params: { backup }, payload })))
    },
    look: ({ id: backup, ...stored }, at) =>
      ask((backups) => backups.look({ params: { backup }, payload: { ...stored, at } }), LOOK),
    contents: ({ id: backup, ...stored }, file) =>
      received(ask((backups) => backups.contents({ params: { backup }, payload: { ...stored, file } }))),
    definition: ({ id: backup, ...payload }) =>
      ask((backups) => backups.definition({ params: { backup }, payload }), LOOK),
    index: ({ id: backup, ...payload }) =>
      received(ask((backups) => backups.index({ params: { backup }, payload }))),
    compare: (id, query, bytes) =>
      send(id, bytes, ({ nodeBackups }, payload) => nodeBackups.compare({ params: { id }, query, payload })),
    test: (target) => ask((backups) => backups.test({ payload: { target } }))
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
  const askOf = <A>(use: (client: DaemonCalls["nodeUploads"]) => Effect.Effect<A, UploadFailure>) =>
    Effect.flatMap(
      ask(true, ({ nodeUploads }) => bytesAnswered(use(nodeUploads))),
      Effect.fromResult
    )
  return {
    begin: (id, payload) => askOf((uploads) => uploads.begin({ params: { id }, payload })),
    find: (id, { owner, upload_id: upload }) =>
      askOf((uploads) => uploads.find({ params: { id, upload }, query: { owner } })),
    append: (id, { upload_id: upload, ...query }, bytes) =>
      send(id, bytes, ({ nodeUploads }, payload) =>
        bytesAnswered(nodeUploads.append({ params: { id, upload }, query, payload }))
      ).pipe(Effect.flatMap(Effect.fromResult)),
    end: (id, { owner, upload_id: upload }) =>
      askOf((uploads) => uploads.end({ params: { id, upload }, query: { owner } })),
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
    options?: CallBounds
  ) => askAny(isRepeatable, ({ nodeFiles }) => use(nodeFiles), options)

  return {
    list: (id, { sizes, ...query }) =>
      ask(
        true,
        (files) => files.list({ params: { id }, query: { ...query, ...(sizes ? { sizes: "true" } : {}) } }),
        { largest: LARGEST_PAGE }
      ),
    stat: (id, path) => ask(true, (files) => files.entry({ params: { id }, query: { path } })),
    read: (id, query) => received(ask(true, (files) => files.read({ params: { id }, query }))),
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
    archive: (id, payload) => received(ask(true, (files) => files.archive({ params: { id }, payload }))),
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

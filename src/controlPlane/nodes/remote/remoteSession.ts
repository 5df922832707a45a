/** A session of files on a remote node, over one WebSocket (spec 10.6). */
import { Deferred, Effect, type Scope, Semaphore } from "effect"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { cleanText } from "../../../contract/domain/NodeText.ts"
import { DaemonRefused, NodeUnreachable } from "../../../contract/nodeApi/Daemon.ts"
import {
  type FileError,
  FileRefused,
  type FileSession,
  type OpenFile
} from "../../../contract/nodeApi/NodeFiles.ts"
import {
  LARGEST_PIECE,
  MOST_IN_FLIGHT,
  readAnswer,
  requestFrame,
  type SessionAnswer,
  type SessionRequest
} from "../../../contract/nodeApi/sessionFrames.ts"
import { openSocket, type SocketOptions } from "./remoteSocket.ts"

/** A piece of a file with its head. */
const LARGEST_ANSWER = LARGEST_PIECE + 16 * 1024
/** The time limit of one request. A rename between file systems, or a sync, takes long. */
const DEADLINE = "2 minutes"

interface Answer {
  readonly head: SessionAnswer
  readonly bytes: Uint8Array
}

const failureOf = ({ detail, hint, status }: NonNullable<SessionAnswer["refused"]>): FileError => {
  const texts = { detail: cleanText(detail), hint: cleanText(hint) }
  return status === 500 ? new DaemonRefused({ status, ...texts }) : new FileRefused({ status, ...texts })
}

/** Sends requests and returns their answers, at most {@link MOST_IN_FLIGHT} at a time. */
const makeAsking = Effect.fnUntraced(function* (options: SocketOptions, id: ServerId) {
  const { node_id } = options
  const waiting = new Map<number, Deferred.Deferred<Answer, FileError>>()
  const ended = yield* Deferred.make<never, FileError>()
  const inFlight = yield* Semaphore.make(MOST_IN_FLIGHT)
  let last = 0
  const lost = new NodeUnreachable({ node_id })
  const path = `/api/servers/${encodeURIComponent(id)}/access/session`
  const { socket } = yield* openSocket(options, path, LARGEST_ANSWER, (socket) => {
    socket.on("message", (data, isBinary) => {
      const read = isBinary && data instanceof Buffer ? readAnswer(data) : undefined
      if (read === undefined) return socket.terminate()
      const { bytes, head } = read
      const failed = head.refused === undefined ? undefined : failureOf(head.refused)
      const answered = waiting.get(read.id)
      if (answered !== undefined)
        Deferred.doneUnsafe(
          answered,
          failed === undefined ? Effect.succeed({ head, bytes }) : Effect.fail(failed)
        )
    })
    socket.on("close", () => {
      Deferred.doneUnsafe(ended, Effect.fail(lost))
      for (const answered of waiting.values()) Deferred.doneUnsafe(answered, Effect.fail(lost))
    })
  })
  const ask = (request: SessionRequest, bytes?: Uint8Array): Effect.Effect<Answer, FileError> =>
    Effect.suspend(() => {
      if (socket.readyState !== socket.OPEN) return Effect.fail(lost)
      last = (last + 1) >>> 0
      const own = last
      const answered = Deferred.makeUnsafe<Answer, FileError>()
      waiting.set(own, answered)
      socket.send(requestFrame(own, request, bytes))
      return Deferred.await(answered).pipe(
        Effect.timeoutOrElse({ duration: DEADLINE, orElse: () => Effect.fail(lost) }),
        Effect.ensuring(Effect.sync(() => waiting.delete(own)))
      )
    }).pipe(inFlight.withPermit)
  /** Returns a field of the answer to a request. */
  const field = <K extends keyof SessionAnswer>(request: SessionRequest, name: K) =>
    Effect.flatMap(
      ask(request),
      ({ head: { [name]: found } }): Effect.Effect<NonNullable<SessionAnswer[K]>, FileError> =>
        found === undefined ? Effect.fail(lost) : Effect.succeed(found)
    )
  return { ask, field, ended: Deferred.await(ended), lost }
})

type Asking = Effect.Success<ReturnType<typeof makeAsking>>

const makeRemoteFile = ({ ask, field, lost }: Asking, file: number): OpenFile => ({
  read: Effect.fnUntraced(function* (offset, length) {
    const pieces: Array<Uint8Array> = []
    for (let at = 0; at < length; ) {
      const wanted = Math.min(LARGEST_PIECE, length - at)
      const { bytes } = yield* ask({ op: "read", file, offset: offset + at, length: wanted })
      if (bytes.length > wanted) return yield* lost
      pieces.push(bytes)
      at += bytes.length
      if (bytes.length < wanted) break
    }
    return pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces)
  }),
  write: Effect.fnUntraced(function* (offset, bytes) {
    for (let at = 0; at < bytes.length; at += LARGEST_PIECE)
      yield* ask({ op: "write", file, offset: offset + at }, bytes.subarray(at, at + LARGEST_PIECE))
  }),
  stat: field({ op: "stat", file }, "stat"),
  set: (attributes) => Effect.asVoid(ask({ op: "set", file, attributes })),
  sync: Effect.asVoid(ask({ op: "sync", file })),
  close: Effect.ignore(ask({ op: "close", file }))
})

/** Opens a session, which ends with the scope or the connection. */
export const openRemoteSession = Effect.fnUntraced(function* (
  options: SocketOptions,
  id: ServerId
): Effect.fn.Return<FileSession, FileError, Scope.Scope> {
  const asking = yield* makeAsking(options, id)
  const { ask, ended, field } = asking
  return {
    open: (path, flags, mode) =>
      Effect.map(
        field({ op: "open", path, flags, ...(mode === undefined ? {} : { mode }) }, "file"),
        (file) => makeRemoteFile(asking, file)
      ),
    openFolder: (path) =>
      Effect.map(field({ op: "folder", path }, "file"), (file) => ({
        read: field({ op: "entries", file }, "entries"),
        close: Effect.ignore(ask({ op: "close", file }))
      })),
    change: (change) => Effect.asVoid(ask({ op: "change", change })),
    space: field({ op: "space" }, "space"),
    ended
  }
})

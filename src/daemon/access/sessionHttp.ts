/** Serves a session to the control plane over a WebSocket (spec 10.6). */
import { Effect, FiberSet } from "effect"
import type { HttpServerRequest } from "effect/http"
import { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import type { FileError, FileSession, OpenFile, OpenFolder } from "../../contract/nodeApi/NodeFiles.ts"
import {
  answerFrame,
  LARGEST_PIECE,
  readRequest,
  type SessionAnswer,
  type SessionRequest
} from "../../contract/nodeApi/sessionFrames.ts"
import { serveSocket } from "../../shared/net/serveSocket.ts"

const refusedWith = (error: FileError): SessionAnswer => {
  if (error._tag === "NodeUnreachable")
    return { refused: { status: 500, detail: "the node is not connected", hint: "Try again later." } }
  const { detail, hint, status } = error
  return { refused: { status, detail, hint } }
}

const notOpen = new DaemonRefused({ status: 409, detail: "the file is not open", hint: "Open it again." })

type Answer = SessionAnswer & { readonly bytes?: Uint8Array }

const makeAnswering = (session: FileSession) => {
  const files = new Map<number, OpenFile>()
  const folders = new Map<number, OpenFolder>()
  let last = 0
  const withFile = <A>(file: number, use: (open: OpenFile) => Effect.Effect<A, FileError>) =>
    Effect.suspend(() => {
      const open = files.get(file)
      return open === undefined ? Effect.fail<FileError>(notOpen) : use(open)
    })
  const none: Answer = {}
  const done = (file: number, use: (open: OpenFile) => Effect.Effect<void, FileError>) =>
    Effect.as(withFile(file, use), none)
  const opened = <A>(all: Map<number, A>, opening: Effect.Effect<A, FileError>) =>
    Effect.map(opening, (open): Answer => {
      last += 1
      all.set(last, open)
      return { file: last }
    })
  return (request: SessionRequest, bytes: Uint8Array): Effect.Effect<Answer, FileError> => {
    switch (request.op) {
      case "open":
        return opened(files, session.open(request.path, request.flags, request.mode))
      case "read":
        return withFile(request.file, (open) =>
          Effect.map(open.read(request.offset, request.length), (bytes) => ({ bytes }))
        )
      case "write":
        return done(request.file, (open) => open.write(request.offset, bytes))
      case "stat":
        return withFile(request.file, (open) => Effect.map(open.stat, (stat) => ({ stat })))
      case "sync":
        return done(request.file, (open) => open.sync)
      case "close": {
        const folder = folders.get(request.file)
        if (folder !== undefined) {
          folders.delete(request.file)
          return Effect.as(folder.close, none)
        }
        return done(request.file, (open) => {
          files.delete(request.file)
          return open.close
        })
      }
      case "folder":
        return opened(folders, session.openFolder(request.path))
      case "entries": {
        const folder = folders.get(request.file)
        return folder === undefined
          ? Effect.fail(notOpen)
          : Effect.map(folder.read, (entries) => ({ entries }))
      }
      case "set":
        return done(request.file, (open) => open.set(request.attributes))
      case "change":
        return Effect.as(session.change(request.change), none)
      case "space":
        return Effect.map(session.space, (space) => ({ space }))
    }
  }
}

/** Answers requests as they are done. The control plane bounds how many are in flight; the connection ends the session. */
export const serveSession = (request: HttpServerRequest.HttpServerRequest, session: FileSession) =>
  serveSocket(request, "a session of files", (write) =>
    Effect.map(FiberSet.make(), (fibers) => {
      const answering = makeAnswering(session)
      return {
        onMessage: (frame) => {
          const read = typeof frame === "string" ? undefined : readRequest(frame)
          if (read === undefined || read.bytes.length > LARGEST_PIECE) return Effect.void
          return answering(read.head, read.bytes).pipe(
            Effect.catch((error) => Effect.succeed<Answer>(refusedWith(error))),
            Effect.flatMap(({ bytes, ...head }) => write(answerFrame(read.id, head, bytes))),
            Effect.ignore,
            FiberSet.run(fibers),
            Effect.asVoid
          )
        },
        until: Effect.ignore(session.ended)
      }
    })
  ).pipe(Effect.withSpan("serveSession"))

import { closeSync, openSync, readFileSync, readSync, renameSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Latch, Schema } from "effect"
import { appendPieces, consoleFiles, type Piece } from "../../console/consoleFiles.ts"
import { type IoError, ioSync, orWarn, toIoError } from "../../disk/fsio.ts"
import { makeConnection } from "./containerJob.ts"
import { destroy, Engine } from "./Engine.ts"
import {
  frameReader,
  type LogPosition,
  logCursor,
  logEntry,
  makeOpenText,
  terminalReader,
  withoutReturns
} from "./logFrames.ts"

/** The silence after which the console shows a line without an end, in ms: the log has its lines by then. */
const OPEN_PAUSE = 100
const LogPositionJson = Schema.fromJsonString(
  Schema.Struct({ since: Schema.Int, count: Schema.Int, size: Schema.Int })
)
const decodePosition = Schema.decodeUnknownEffect(LogPositionJson)

const consolePath = (folder: string) => consoleFiles(folder).current
const positionPath = (folder: string) => join(folder, "console.at")

const sizeOf = (path: string): number => {
  try {
    return statSync(path).size
  } catch {
    return 0 // missing
  }
}

/** Returns the bytes of a console from an offset on. A smaller console was rotated since. */
const readFrom = (path: string, offset: number): Buffer => {
  const bytes = Buffer.alloc(Math.max(0, sizeOf(path) - offset))
  if (bytes.length === 0) return bytes
  const fd = openSync(path, "r")
  try {
    return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, offset))
  } finally {
    closeSync(fd)
  }
}

/** Records the position at which the output of a new run begins. */
export const beginContainerConsole = (folder: string): Effect.Effect<void, IoError> =>
  ioSync("write console.at", () =>
    writeFileSync(
      positionPath(folder),
      JSON.stringify({ since: 0, count: 0, size: sizeOf(consolePath(folder)) } satisfies LogPosition)
    )
  )

export interface ConsoleOf {
  readonly id: string
  readonly terminal: boolean
  readonly isNew?: boolean
}

/** Returns the reader of a log stream. `end`: the payload of an entry at the end of the log. */
const logReader = (terminal: boolean) => {
  if (!terminal) return { read: frameReader(), end: () => [], clean: (payload: Buffer) => payload }
  return { ...terminalReader(), clean: withoutReturns }
}

/** Copies a container's output to `console.log`, with its position on disk: a kill loses and repeats no line. */
export const openContainerConsole = Effect.fnUntraced(function* (
  { id, isNew = false, terminal }: ConsoleOf,
  folder: string
) {
  const engine = yield* Engine
  const path = consolePath(folder)
  let position = yield* ioSync("read console.at", () => readFileSync(positionPath(folder), "utf8")).pipe(
    Effect.flatMap(decodePosition),
    Effect.catch((error) =>
      Effect.as(
        Effect.logWarning(
          `the position in the log of the engine is lost, the log is read from its start: ${error.message.split("\n")[0]}`
        ),
        {
          since: 0,
          count: 0,
          size: sizeOf(path)
        }
      )
    )
  )
  const unlogged = ioSync("read console.log", () => readFrom(path, position.size))
  const open = makeOpenText(
    yield* Effect.catch(unlogged, (error) => Effect.as(Effect.logWarning(error.message), Buffer.alloc(0))),
    isNew
  )
  let isOver = false
  let activity = 0
  const waiting = Latch.makeUnsafe(false)
  const noteActivity = () => {
    activity++
    if (open.isOpen()) waiting.openUnsafe()
  }

  /** Returns the consumer of a log stream; `isWhole`: the log ends with the chunk. */
  const makeConsumer = () => {
    const reader = logReader(terminal)
    const cursor = logCursor(position)
    return (chunk: Buffer, isWhole = false): void => {
      const pieces: Array<Piece> = []
      for (const frame of [...reader.read(chunk), ...(isWhole ? reader.end() : [])]) {
        const taken = cursor.take(logEntry(frame.payload))
        if (taken === undefined) continue
        const piece = open.logged(frame.stream, reader.clean(taken))
        if (piece.bytes.length > 0) pieces.push(piece)
      }
      const size = pieces.length === 0 ? sizeOf(path) : appendPieces(path, pieces)
      position = cursor.position(Math.max(0, size - open.ahead()))
      writeFileSync(`${positionPath(folder)}.tmp`, JSON.stringify(position))
      renameSync(`${positionPath(folder)}.tmp`, positionPath(folder))
      noteActivity()
    }
  }

  const settings = { stdout: true, stderr: true, timestamps: true } as const

  const follow = engine
    .wait("read the console", (docker, abortSignal) =>
      docker.getContainer(id).logs({ ...settings, follow: true, since: position.since, abortSignal })
    )
    .pipe(
      Effect.flatMap((stream) =>
        Effect.callback<void, IoError>((resume) => {
          const consume = makeConsumer()
          stream.on("data", (chunk: Buffer) => {
            try {
              consume(chunk)
            } catch (cause) {
              destroy(stream)
              resume(Effect.fail(toIoError("write console.log", cause)))
            }
          })
          // An error: the engine went down.
          for (const end of ["error", "close", "end"]) stream.on(end, () => resume(Effect.void))
          return Effect.sync(() => destroy(stream))
        })
      )
    )

  const catchUp = Effect.sync(() => {
    isOver = true
  }).pipe(
    Effect.andThen(
      engine.call("read the console", (docker, abortSignal) =>
        docker.getContainer(id).logs({ ...settings, follow: false, since: position.since, abortSignal })
      )
    ),
    Effect.flatMap((bytes) => ioSync("write console.log", () => makeConsumer()(bytes, true)))
  )

  const showOpen = Effect.gen(function* () {
    yield* waiting.await
    yield* waiting.close
    let before: number
    do {
      before = activity
      yield* Effect.sleep(OPEN_PAUSE)
    } while (before !== activity)
    yield* ioSync("write console.log", () => {
      const pieces = isOver ? [] : open.take().map((bytes) => ({ bytes, isApart: false }))
      if (pieces.length > 0) appendPieces(path, pieces)
    })
  }).pipe(orWarn)

  const connection = makeConnection(id, terminal, {
    onBegin: open.reset,
    onOutput: (bytes, stream) => {
      open.attached(stream, bytes)
      noteActivity()
    }
  })
  /** Shows lines without an end, in the scope; returns once the container is attached to, or cannot be. */
  const attach = Effect.andThen(Effect.forkScoped(Effect.forever(showOpen)), connection.keep).pipe(
    Effect.provideService(Engine, engine)
  )

  return { follow, catchUp, attach, write: connection.write }
})

export type ContainerConsole = Effect.Success<ReturnType<typeof openContainerConsole>>

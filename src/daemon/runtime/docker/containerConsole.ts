import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { Effect, Schema } from "effect"
import { markLate } from "../../console/ConsoleTimes.ts"
import { type IoError, ioSync, toIoError } from "../../disk/fsio.ts"
import { Engine } from "./Engine.ts"
import {
  frameReader,
  type LogPosition,
  logCursor,
  logEntry,
  terminalReader,
  withoutReturns
} from "./logFrames.ts"

const LogPositionJson = Schema.fromJsonString(
  Schema.Struct({ since: Schema.Int, count: Schema.Int, size: Schema.Int })
)
const decodePosition = Schema.decodeUnknownEffect(LogPositionJson)

const consolePath = (folder: string) => join(folder, "console.log")
const positionPath = (folder: string) => join(folder, "console.at")

const sizeOf = (path: string): number => {
  try {
    return statSync(path).size
  } catch {
    return 0 // missing
  }
}

/** Appends to a console; returns its size. */
const append = (path: string, pieces: ReadonlyArray<Buffer>): number => {
  const fd = openSync(path, "a", 0o600)
  try {
    for (const piece of pieces) for (let at = 0; at < piece.length; ) at += writeSync(fd, piece, at)
    return fstatSync(fd).size
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

/** A container whose console is copied. */
export interface ConsoleOf {
  readonly id: string
  /** Whether its output is that of a terminal. */
  readonly terminal: boolean
}

/** Returns the reader of a log stream. `end`: the payload of an entry at the end of the log. */
const logReader = (terminal: boolean) => {
  if (!terminal) return { read: frameReader(), end: () => [], clean: (payload: Buffer) => payload }
  return { ...terminalReader(), clean: withoutReturns }
}

/**
 * Copies the output of a container from the engine's log to `console.log`. The position is written to disk after each
 * piece, so that no line is lost or repeated if this process is killed.
 */
export const openContainerConsole = Effect.fnUntraced(function* (
  { id, terminal }: ConsoleOf,
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
  // Bytes that were appended after the last recorded position. A smaller console was rotated since.
  let written = Math.max(0, sizeOf(path) - position.size)

  /** Returns the consumer of a log stream; `isWhole`: the log ends with the chunk. */
  const makeConsumer = () => {
    const reader = logReader(terminal)
    const cursor = logCursor(position)
    return (chunk: Buffer, isWhole = false): void => {
      const pieces: Array<Buffer> = []
      const times: Array<{ readonly bytes: number; readonly at: number }> = []
      for (const frame of [...reader.read(chunk), ...(isWhole ? reader.end() : [])]) {
        const entry = logEntry(frame)
        const taken = cursor.take(entry)
        if (taken === undefined) continue
        const payload = reader.clean(taken)
        const known = Math.min(written, payload.length)
        written -= known
        if (known === payload.length) continue
        pieces.push(payload.subarray(known))
        times.push({ bytes: payload.length - known, at: entry.at })
      }
      const size = pieces.length === 0 ? sizeOf(path) : append(path, pieces)
      markLate(folder, size, times)
      position = cursor.position(Math.max(0, size - written))
      writeFileSync(`${positionPath(folder)}.tmp`, JSON.stringify(position))
      renameSync(`${positionPath(folder)}.tmp`, positionPath(folder))
    }
  }

  const settings = { stdout: true, stderr: true, timestamps: true } as const

  /** Copies output until the container ends or the engine goes down. */
  const follow = engine
    .wait("read the console", (docker, abortSignal) =>
      docker.getContainer(id).logs({ ...settings, follow: true, since: position.since, abortSignal })
    )
    .pipe(
      Effect.flatMap((stream) =>
        Effect.callback<void, IoError>((resume) => {
          const consume = makeConsumer()
          const close = () => {
            if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy()
          }
          stream.on("data", (chunk: Buffer) => {
            try {
              consume(chunk)
            } catch (cause) {
              close()
              resume(Effect.fail(toIoError("write console.log", cause)))
            }
          })
          stream.on("error", () => resume(Effect.void)) // the engine went down
          stream.on("close", () => resume(Effect.void))
          stream.on("end", () => resume(Effect.void))
          return Effect.sync(close)
        })
      )
    )

  /** Copies the output that exists now. */
  const catchUp = engine
    .call("read the console", (docker, abortSignal) =>
      docker.getContainer(id).logs({ ...settings, follow: false, since: position.since, abortSignal })
    )
    .pipe(Effect.flatMap((bytes) => ioSync("write console.log", () => makeConsumer()(bytes, true))))

  return { follow, catchUp }
})

export type ContainerConsole = Effect.Success<ReturnType<typeof openContainerConsole>>

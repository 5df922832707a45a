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
import { type IoError, ioSync, toIoError } from "../../disk/fsio.ts"
import { Engine } from "./Engine.ts"
import { frameReader, type LogPlace, logCursor, logEntry } from "./logFrames.ts"

const LogPlaceJson = Schema.fromJsonString(
  Schema.Struct({ since: Schema.Int, count: Schema.Int, size: Schema.Int })
)
const decodePlace = Schema.decodeUnknownEffect(LogPlaceJson)

const consolePath = (folder: string) => join(folder, "console.log")
const placePath = (folder: string) => join(folder, "console.at")

const sizeOf = (path: string): number => {
  try {
    return statSync(path).size
  } catch {
    return 0 // not there yet
  }
}

/** Appends to a console; answers its size. */
const append = (path: string, pieces: ReadonlyArray<Buffer>): number => {
  const fd = openSync(path, "a", 0o600)
  try {
    for (const piece of pieces) for (let at = 0; at < piece.length; ) at += writeSync(fd, piece, at)
    return fstatSync(fd).size
  } finally {
    closeSync(fd)
  }
}

/** Where the output of a new run begins. */
export const beginContainerConsole = (folder: string): Effect.Effect<void, IoError> =>
  ioSync("write console.at", () =>
    writeFileSync(
      placePath(folder),
      JSON.stringify({ since: 0, count: 0, size: sizeOf(consolePath(folder)) } satisfies LogPlace)
    )
  )

/**
 * Copies what the engine keeps of a container's output to `console.log`. Where it stands is on disk before the next
 * piece comes, so that no line is lost or repeated when this process is killed in between.
 */
export const openContainerConsole = Effect.fnUntraced(function* (id: string, folder: string) {
  const engine = yield* Engine
  const path = consolePath(folder)
  let place = yield* ioSync("read console.at", () => readFileSync(placePath(folder), "utf8")).pipe(
    Effect.flatMap(decodePlace),
    Effect.catch((error) =>
      Effect.as(Effect.logWarning(`the console begins anew: ${error.message.split("\n")[0]}`), {
        since: 0,
        count: 0,
        size: sizeOf(path)
      })
    )
  )
  // What was appended after the place was last noted. A console that is smaller has been cut since.
  let written = Math.max(0, sizeOf(path) - place.size)

  /** Takes in pieces of the engine's stream. */
  const taker = () => {
    const frames = frameReader()
    const cursor = logCursor(place)
    return (chunk: Buffer): void => {
      const pieces: Array<Buffer> = []
      for (const frame of frames(chunk)) {
        const payload = cursor.take(logEntry(frame))
        if (payload === undefined) continue
        const known = Math.min(written, payload.length)
        written -= known
        if (known < payload.length) pieces.push(payload.subarray(known))
      }
      const size = pieces.length === 0 ? sizeOf(path) : append(path, pieces)
      place = cursor.place(Math.max(0, size - written))
      writeFileSync(`${placePath(folder)}.tmp`, JSON.stringify(place))
      renameSync(`${placePath(folder)}.tmp`, placePath(folder))
    }
  }

  const settings = { stdout: true, stderr: true, timestamps: true } as const

  /** Reads on until the container ends or the engine goes away. */
  const follow = engine
    .wait("read the console", (docker, abortSignal) =>
      docker.getContainer(id).logs({ ...settings, follow: true, since: place.since, abortSignal })
    )
    .pipe(
      Effect.flatMap((stream) =>
        Effect.callback<void, IoError>((resume) => {
          const take = taker()
          const close = () => {
            if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy()
          }
          stream.on("data", (chunk: Buffer) => {
            try {
              take(chunk)
            } catch (cause) {
              close()
              resume(Effect.fail(toIoError("write console.log", cause)))
            }
          })
          stream.on("error", () => resume(Effect.void)) // the engine went away
          stream.on("close", () => resume(Effect.void))
          stream.on("end", () => resume(Effect.void))
          return Effect.sync(close)
        })
      )
    )

  /** Reads what is there now. */
  const catchUp = engine
    .call("read the console", (docker, abortSignal) =>
      docker.getContainer(id).logs({ ...settings, follow: false, since: place.since, abortSignal })
    )
    .pipe(Effect.flatMap((bytes) => ioSync("write console.log", () => taker()(bytes))))

  return { follow, catchUp }
})

export type ContainerConsole = Effect.Success<ReturnType<typeof openContainerConsole>>

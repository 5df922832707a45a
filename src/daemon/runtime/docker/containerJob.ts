import { Deferred, Effect, Semaphore } from "effect"
import { orWarn } from "../../disk/fsio.ts"
import type { ProcessExit } from "../exitReason.ts"
import { ConsoleInputFailed, type RunningJob } from "../Runtime.ts"
import { waitForExit } from "./containers.ts"
import { destroy, Engine, onContainer, orDone } from "./Engine.ts"
import { frameReader } from "./logFrames.ts"

/** The time for remaining output after the end, in ms. */
const OUTPUT_GRACE = 2000

/** Attaches to a container before its start, so that no output is missed. */
export const attachContainer = Effect.fnUntraced(function* (
  id: string,
  terminal: boolean,
  onOutput: (bytes: Uint8Array, stream: number) => void
) {
  const socket = yield* Effect.acquireRelease(
    onContainer(id, "attach to the container", (container, options) =>
      container.attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true, ...options })
    ),
    (opened) => Effect.sync(() => destroy(opened))
  )
  const closed = Deferred.makeUnsafe<void>()
  const frames = frameReader()
  socket.on("data", (chunk: Buffer) => {
    // The output of a terminal has no frames.
    if (terminal) return onOutput(chunk, 0)
    for (const { payload, stream } of frames(chunk)) onOutput(payload, stream)
  })
  // The exit of the container says how it ended.
  for (const end of ["end", "close", "error"]) {
    socket.on(end, () => Deferred.doneUnsafe(closed, Effect.void))
  }
  return { socket, closed: Deferred.await(closed) }
})

type Attached = Effect.Success<ReturnType<typeof attachContainer>>

export const runningJob = Effect.fnUntraced(function* (id: string, attached: Attached) {
  const engine = yield* Engine
  const ended = yield* Deferred.make<ProcessExit>()
  yield* waitForExit(id, () => false).pipe(
    Effect.tap(() => Effect.timeoutOption(attached.closed, OUTPUT_GRACE)),
    Effect.flatMap((exit) => Deferred.succeed(ended, exit)),
    Effect.forkScoped
  )
  const job: RunningJob = {
    ended: Deferred.await(ended),
    write: (line) =>
      Effect.sync(() => {
        attached.socket.write(`${line}\n`)
      }),
    signal: (signal) =>
      engine
        .call(`send ${signal}`, (docker, abortSignal) =>
          docker.getContainer(id).kill({ signal, abortSignal })
        )
        .pipe(orDone, orWarn)
  }
  return job
})

/** Bytes that are queued for a server that does not read. */
const MAX_QUEUED = 64 * 1024

const closed = new ConsoleInputFailed({ why: "closed", message: "the console is closed" })

export const consoleClosed = Effect.fail(closed)

const full = new ConsoleInputFailed({
  why: "full",
  message: "the server does not read its console"
})

/** Writes to a container's input without waiting for the server. The end of the connection does not end the input. */
export const makeContainerInput = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  const lock = yield* Semaphore.make(1)
  let socket: NodeJS.ReadWriteStream | undefined
  let isReleased = false

  const connect = onContainer(id, "attach to the console", (container, options) =>
    container.attach({ stream: true, stdin: true, stdout: false, stderr: false, hijack: true, ...options })
  ).pipe(
    Effect.provideService(Engine, engine),
    Effect.mapError(({ message, status }) =>
      status === undefined ? new ConsoleInputFailed({ why: "away", message }) : closed
    ),
    Effect.map((stream) => {
      const lost = () => {
        if (socket === stream) socket = undefined
      }
      stream.on("error", lost)
      stream.on("close", lost)
      stream.resume() // no data arrives; flowing mode is needed to see the end
      socket = stream
      return stream
    })
  )

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isReleased = true
      if (socket !== undefined) destroy(socket)
    })
  )

  return (text: string): Effect.Effect<void, ConsoleInputFailed> =>
    lock.withPermit(
      Effect.gen(function* () {
        if (isReleased) return yield* closed
        const stream = socket ?? (yield* connect)
        if ("writableLength" in stream && Number(stream.writableLength) > MAX_QUEUED) return yield* full
        stream.write(text)
      })
    )
})

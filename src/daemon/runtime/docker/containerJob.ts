import { Deferred, Effect, Exit } from "effect"
import { orWarn } from "../../disk/fsio.ts"
import type { ProcessExit } from "../exitReason.ts"
import { ConsoleInputFailed, type RunningJob } from "../Runtime.ts"
import { waitForExit } from "./containers.ts"
import { destroy, Engine, EngineError, onContainer, orDone } from "./Engine.ts"
import { frameReader } from "./logFrames.ts"

/** The time for remaining output after the end, in ms. */
const OUTPUT_GRACE = 2000

type OnOutput = (bytes: Uint8Array, stream: number) => void

/** Attaches to a container before its start, so that no output is missed. */
export const attachContainer = Effect.fnUntraced(function* (
  id: string,
  terminal: boolean,
  onOutput: OnOutput
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
  return {
    ended: Deferred.await(ended),
    write: (line) =>
      Effect.sync(() => {
        attached.socket.write(`${line}\n`)
      }),
    signal: (signal) =>
      onContainer(id, `send ${signal}`, (container, options) => container.kill({ signal, ...options })).pipe(
        orDone,
        orWarn,
        Effect.provideService(Engine, engine)
      )
  } satisfies RunningJob
})

const ATTACH_PAUSE = 500
/** Bytes that are queued for a server that does not read. */
const MAX_QUEUED = 64 * 1024

const closed = new ConsoleInputFailed({ why: "closed", message: "the console is closed" })
const full = new ConsoleInputFailed({ why: "full", message: "the server does not read its console" })

export const consoleClosed = Effect.fail(closed)

/** Makes a connection to a container that is made again after each end. `onBegin`: before each attempt. */
export const makeConnection = (
  id: string,
  terminal: boolean,
  { onBegin, onOutput }: { readonly onBegin: () => void; readonly onOutput: OnOutput }
) => {
  let current = Deferred.makeUnsafe<NodeJS.ReadWriteStream, EngineError>()
  const attempt = Effect.gen(function* () {
    onBegin()
    const made = yield* Effect.exit(attachContainer(id, terminal, onOutput))
    const socket = Exit.map(made, (attached) => attached.socket)
    yield* Deferred.done(current, socket)
    yield* Exit.isSuccess(made) ? made.value.closed : Effect.logDebug("console: not attached", made.cause)
    current = Deferred.makeUnsafe()
  }).pipe(Effect.scoped)

  /** Keeps the connection in the scope; returns once the container is attached to, or cannot be. */
  const keep = Effect.gen(function* () {
    const first = current
    const over = new EngineError({ status: 404, message: "the container has ended" })
    yield* Effect.addFinalizer(() => Deferred.fail(current, over))
    yield* Effect.forkScoped(Effect.forever(Effect.andThen(attempt, Effect.sleep(ATTACH_PAUSE))))
    yield* Effect.exit(Deferred.await(first))
  })

  /** Writes to the input without waiting for the server. The end of the connection does not end the input. */
  const write = (text: string): Effect.Effect<void, ConsoleInputFailed> =>
    Effect.suspend(() => Deferred.await(current)).pipe(
      Effect.mapError(({ message, status }) =>
        status === undefined ? new ConsoleInputFailed({ why: "away", message }) : closed
      ),
      Effect.flatMap((socket) =>
        "writableLength" in socket && Number(socket.writableLength) > MAX_QUEUED
          ? full
          : Effect.sync(() => socket.write(text))
      ),
      Effect.asVoid
    )

  return { keep, write }
}

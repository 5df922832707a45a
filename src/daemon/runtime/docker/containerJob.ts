import { Deferred, Effect } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import type { RunningJob } from "../Runtime.ts"
import { waitForExit } from "./containers.ts"
import { Engine, orDone } from "./Engine.ts"
import { frameReader } from "./logFrames.ts"

/** The time for remaining output after the end, in ms. */
const OUTPUT_GRACE = 2000

/** Attaches to a container, before its start so that no output is missed. `stream`: as in a frame. */
export const attachContainer = Effect.fnUntraced(function* (
  id: string,
  terminal: boolean,
  onOutput: (bytes: Uint8Array, stream: number) => void
) {
  const engine = yield* Engine
  const socket = yield* Effect.acquireRelease(
    engine.call("attach to the container", (docker, abortSignal) =>
      docker
        .getContainer(id)
        .attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true, abortSignal })
    ),
    (opened) =>
      Effect.sync(() => {
        if ("destroy" in opened && typeof opened.destroy === "function") opened.destroy()
      })
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
        .pipe(
          orDone,
          Effect.catch((error) => Effect.logWarning(error.message))
        )
  }
  return job
})

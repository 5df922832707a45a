import { Deferred, Effect } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import type { RunningJob } from "../Runtime.ts"
import { waitForExit } from "./containers.ts"
import { Engine, orDone } from "./Engine.ts"
import { frameReader } from "./logFrames.ts"

/** The time for remaining output after the end, in ms. */
const OUTPUT_GRACE = 2000

/** Attaches to a container before its start, so that no output is missed. */
export const attachJob = Effect.fnUntraced(function* (
  id: string,
  terminal: boolean,
  onOutput: (bytes: Uint8Array) => void
) {
  const engine = yield* Engine
  const stream = yield* Effect.acquireRelease(
    engine.call("attach to the container", (docker, abortSignal) =>
      docker
        .getContainer(id)
        .attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true, abortSignal })
    ),
    (socket) =>
      Effect.sync(() => {
        if ("destroy" in socket && typeof socket.destroy === "function") socket.destroy()
      })
  )
  const closed = Deferred.makeUnsafe<void>()
  const frames = frameReader()
  stream.on("data", (chunk: Buffer) => {
    // The output of a terminal has no frames.
    if (terminal) return onOutput(chunk)
    for (const payload of frames(chunk)) onOutput(payload)
  })
  // The exit of the container says how it ended.
  for (const end of ["end", "close", "error"]) {
    stream.on(end, () => Deferred.doneUnsafe(closed, Effect.void))
  }
  return { stream, closed: Deferred.await(closed) }
})

type Attached = Effect.Success<ReturnType<typeof attachJob>>

/** Returns the job of a started container. */
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
        attached.stream.write(`${line}\n`)
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

import { Effect, Semaphore } from "effect"
import { ConsoleInputFailed } from "../Runtime.ts"
import { Engine } from "./Engine.ts"

/** Bytes that are queued for a server that does not read. */
const MAX_QUEUED = 64 * 1024

const closed = new ConsoleInputFailed({ why: "closed", message: "the console is closed" })

/** The failure of a line for a container that does not run. */
export const consoleClosed = Effect.fail(closed)

const full = new ConsoleInputFailed({
  why: "full",
  message: "the server does not read its console"
})

/**
 * Writes texts to the standard input of a container without waiting for the server. The first one opens the
 * connection, and one after a loss reopens it; the end of a connection does not end the server's input. Closed with
 * the scope.
 */
export const makeContainerInput = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  const lock = yield* Semaphore.make(1)
  let socket: NodeJS.ReadWriteStream | undefined
  let isReleased = false

  const destroy = (stream: NodeJS.ReadWriteStream) => {
    if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy()
  }

  const connect = engine
    .call("attach to the console", (docker, abortSignal) =>
      docker
        .getContainer(id)
        .attach({ stream: true, stdin: true, stdout: false, stderr: false, hijack: true, abortSignal })
    )
    .pipe(
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

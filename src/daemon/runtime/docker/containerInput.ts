import { Effect, Semaphore } from "effect"
import { ConsoleInputFailed } from "../Runtime.ts"
import { Engine } from "./Engine.ts"

/** Bytes that may wait for a server that does not read. */
const MOST_WAITING = 64 * 1024

const closed = new ConsoleInputFailed({ why: "closed", message: "the console is closed" })

/** What a line for a container that does not run meets. */
export const consoleClosed = Effect.fail(closed)

const full = new ConsoleInputFailed({
  why: "full",
  message: "the server does not read its console"
})

/**
 * Writes lines to the standard input of a container, never waiting for the server. The connection is made with the
 * first line, and again when it is lost; its end does not end the server's input. Closed with the scope.
 */
export const makeContainerInput = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  const lock = yield* Semaphore.make(1)
  let socket: NodeJS.ReadWriteStream | undefined
  let over = false

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
        stream.resume() // nothing comes; its end has to be seen
        socket = stream
        return stream
      })
    )

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      over = true
      if (socket !== undefined) destroy(socket)
    })
  )

  return (line: string): Effect.Effect<void, ConsoleInputFailed> =>
    lock.withPermit(
      Effect.gen(function* () {
        if (over) return yield* closed
        const stream = socket ?? (yield* connect)
        if ("writableLength" in stream && Number(stream.writableLength) > MOST_WAITING) return yield* full
        stream.write(`${line}\n`)
      })
    )
})

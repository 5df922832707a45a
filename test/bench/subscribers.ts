/** SSE subscribers over raw sockets, in the process of the bench. */
import { connect, type Socket } from "node:net"
import { Effect } from "effect"
import { BenchFailed } from "./harness.ts"

/** Connections that are opened at a time. */
const OPENING = 100

export interface Target {
  readonly url: string
  readonly path: string
  readonly key?: string
}

/** Opens streams, each with a socket of its own; `onData` gets their bytes. */
export const openStreams = ({ key, path, url }: Target, count: number, onData: (chunk: Buffer) => void) => {
  const { host, hostname, port } = new URL(url)
  const authorization = key === undefined ? "" : `Authorization: Bearer ${key}\r\n`
  const head = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${authorization}\r\n`
  const open = Effect.callback<Socket, BenchFailed>((resume) => {
    const socket = connect(Number(port), hostname, () => socket.write(head))
    socket.once("error", ({ message }) => resume(Effect.fail(new BenchFailed({ message }))))
    socket.once("data", (chunk) => {
      const status = chunk.toString("latin1", 9, 12)
      resume(
        status === "200"
          ? Effect.succeed(socket)
          : Effect.fail(new BenchFailed({ message: `a subscription was answered ${status}` }))
      )
    })
    socket.on("data", onData)
  })
  return Effect.forEach(
    Array.from({ length: count }),
    () => Effect.acquireRelease(open, (socket) => Effect.sync(() => socket.destroy())),
    { concurrency: OPENING }
  )
}

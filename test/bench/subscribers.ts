/**
 * Subscribers of events over raw sockets, SSE or WebSocket: in the process of the bench, or in one of their own, which
 * prints the delays of the events as JSON: `node subscribers.ts <options as JSON>`.
 */
import { spawn } from "node:child_process"
import { connect, type Socket } from "node:net"
import { Effect } from "effect"
import { BenchFailed } from "./harness.ts"
import { percentile } from "./load.ts"

/** Connections that are opened at a time. */
const OPENING = 100
/** The field of an event that has its time, in milliseconds since the epoch. */
const STAMP = Buffer.from('"reason":"')
const STAMP_BYTES = 16

export interface Target {
  readonly url: string
  readonly path: string
  readonly key?: string
  readonly isWebSocket?: boolean
}

const webSocketHeaders =
  "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

const now = () => performance.timeOrigin + performance.now()

/** Opens streams, each with a socket of its own; `onData` gets their bytes, in a buffer that the next bytes overwrite. */
export const openStreams = (
  { isWebSocket = false, key, path, url }: Target,
  count: number,
  onData: (bytes: Buffer, length: number) => void
) => {
  const { host, hostname, port } = new URL(url)
  const authorization = key === undefined ? "" : `Authorization: Bearer ${key}\r\n`
  const upgrade = isWebSocket ? webSocketHeaders : ""
  const head = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${authorization}${upgrade}\r\n`
  const expected = isWebSocket ? "101" : "200"
  const buffer = Buffer.allocUnsafe(64 * 1024)
  const open = Effect.callback<Socket, BenchFailed>((resume) => {
    let isOpen = false
    const onread = {
      buffer,
      callback: (length: number) => {
        if (isOpen) {
          onData(buffer, length)
          return true
        }
        isOpen = true
        const status = buffer.toString("latin1", 9, 12)
        resume(
          status === expected
            ? Effect.succeed(socket)
            : Effect.fail(new BenchFailed({ message: `a subscription was answered ${status}` }))
        )
        return true
      }
    }
    const socket = connect({ port: Number(port), host: hostname, onread }, () => socket.write(head))
    socket.once("error", ({ message }) => resume(Effect.fail(new BenchFailed({ message }))))
  })
  return Effect.forEach(
    Array.from({ length: count }),
    () => Effect.acquireRelease(open, (socket) => Effect.sync(() => socket.destroy())),
    { concurrency: OPENING }
  )
}

interface ProcessOptions extends Target {
  /** Subscribers whose events are timed, and those that only read. */
  readonly timed: number
  readonly others: number
}

/** Delays in ms of the oldest event of each chunk, and the bytes of all subscribers of the process. */
export interface Received {
  readonly p50: number
  readonly p99: number
  readonly bytes: number
}

/** Opens subscribers in a process of their own; the effect that it returns yields what they received while `work` ran. */
export const subscribersInProcess = Effect.fnUntraced(function* (options: ProcessOptions) {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, [import.meta.filename, JSON.stringify(options)], {
        stdio: ["pipe", "pipe", "inherit"]
      })
    ),
    (process) => Effect.sync(() => process.kill("SIGKILL"))
  )
  const lines: Array<string> = []
  let waiting = () => {}
  let output = ""
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString()
    const parts = output.split("\n")
    output = parts.pop() ?? ""
    lines.push(...parts)
    waiting()
  })
  child.once("close", () => {
    lines.push("")
    waiting()
  })
  const line = Effect.callback<string>((resume) => {
    waiting = () => {
      const first = lines.shift()
      if (first !== undefined) resume(Effect.succeed(first))
    }
    waiting()
  })
  if ((yield* line) === "") return yield* new BenchFailed({ message: "the subscribers have ended" })
  return <A, E, R>(work: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      child.stdin.write("begin\n")
      const result = yield* work
      child.stdin.write("end\n")
      const received: Received = JSON.parse((yield* line) || "{}")
      return { result, received }
    })
})

const run = Effect.fnUntraced(function* ({ others, timed, ...target }: ProcessOptions) {
  const delays: Array<number> = []
  let bytes = 0
  yield* openStreams(target, timed, (chunk, length) => {
    bytes += length
    const at = chunk.indexOf(STAMP)
    if (at === -1 || at + STAMP.length + STAMP_BYTES > length) return
    const from = at + STAMP.length
    delays.push(now() - Number(chunk.toString("latin1", from, from + STAMP_BYTES)))
  })
  yield* openStreams(target, others, (_, length) => {
    bytes += length
  })
  process.stdout.write("open\n")
  process.stdin.on("data", (command: Buffer) => {
    if (command.toString() === "end\n") {
      const sorted = delays.toSorted((a, b) => a - b)
      const received: Received = { p50: percentile(sorted, 0.5), p99: percentile(sorted, 0.99), bytes }
      process.stdout.write(`${JSON.stringify(received)}\n`)
    }
    delays.length = 0
    bytes = 0
  })
  return yield* Effect.never
}, Effect.scoped)

if (import.meta.main) await Effect.runPromise(run(JSON.parse(process.argv[2] ?? "")))

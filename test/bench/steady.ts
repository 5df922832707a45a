/**
 * Requests at a fixed rate over raw sockets, from a process of their own: `node steady.ts <options as JSON>` prints a
 * line when it begins, and the latencies as JSON when its input ends. A latency counts from the time at which the
 * request was due, so that a service that stalls does not slow the requests that would show it.
 */
import { spawn } from "node:child_process"
import { connect } from "node:net"
import { Effect } from "effect"
import { BenchFailed } from "./harness.ts"
import { percentile, Reader } from "./load.ts"

export interface SteadyOptions {
  readonly url: string
  readonly key: string
  readonly path: string
  /** Milliseconds between two requests. */
  readonly every: number
  /** More requests than these wait for a connection. */
  readonly connections: number
}

/** Latencies in ms. */
export interface Latencies {
  readonly requests: number
  readonly p50: number
  readonly p99: number
  readonly longest: number
}

/** Returns the latencies of requests while `work` runs. */
export const steadyDuring = <A, E, R>(options: SteadyOptions, work: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, [import.meta.filename, JSON.stringify(options)], {
          stdio: ["pipe", "pipe", "inherit"]
        })
      ),
      (process) => Effect.sync(() => process.kill("SIGKILL"))
    )
    let output = ""
    const begun = Effect.callback<void>((resume) => {
      child.stdout.on("data", (chunk: Buffer) => {
        output += chunk.toString()
        resume(Effect.void)
      })
    })
    yield* begun
    yield* work
    const ended = Effect.callback<void>((resume) => {
      child.once("close", () => resume(Effect.void))
    })
    child.stdin.end()
    yield* ended
    return yield* Effect.try({
      try: (): Latencies => JSON.parse(output.slice(output.indexOf("\n"))),
      catch: () => new BenchFailed({ message: `steady requests: ${output}` })
    })
  }).pipe(Effect.scoped)

if (import.meta.main) {
  const { connections, every, key, path, url }: SteadyOptions = JSON.parse(process.argv[2] ?? "")
  const { hostname, port } = new URL(url)
  const request = `GET ${path} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nAuthorization: Bearer ${key}\r\n\r\n`
  const latencies: Array<number> = []
  /** Times at which requests are due that wait for a connection. */
  const due: Array<number> = []
  const free: Array<(due: number) => void> = []
  const send = () => {
    while (due.length > 0 && free.length > 0) free.pop()?.(due.shift() ?? 0)
  }
  const fail = (reason: string) => {
    process.stderr.write(`${reason}\n`)
    process.exit(1)
  }
  const begin = () => {
    let next = performance.now()
    process.stdout.write("begun\n")
    const timer = setInterval(() => {
      for (const now = performance.now(); next <= now; next += every) due.push(next)
      send()
    }, 1)
    process.stdin.resume().on("end", () => {
      clearInterval(timer)
      const sorted = latencies.toSorted((a, b) => a - b)
      const found: Latencies = {
        requests: sorted.length,
        p50: percentile(sorted, 0.5),
        p99: percentile(sorted, 0.99),
        longest: percentile(sorted, 1)
      }
      process.stdout.write(JSON.stringify(found), () => process.exit(0))
    })
  }
  for (let n = 0; n < connections; n++) {
    const socket = connect(Number(port), hostname)
    const reader = new Reader()
    let since = 0
    const ask = (at: number) => {
      since = at
      socket.write(request)
    }
    socket.setNoDelay(true)
    socket.on("data", (chunk: Buffer) => {
      if (!reader.read(chunk)) return
      if (reader.status !== 200) return fail(`status ${reader.status}`)
      latencies.push(performance.now() - since)
      free.push(ask)
      send()
    })
    socket.on("error", (error) => fail(error.message))
    socket.on("end", () => fail("the connection was closed"))
    socket.once("connect", () => {
      free.push(ask)
      if (free.length === connections) begin()
    })
  }
}

/**
 * A load generator over keep-alive connections, one request at a time on each. It implements a minimum of HTTP/1.1 over
 * plain sockets: a full client would take longer for a request than the measured servers.
 */
import { connect, type Socket } from "node:net"
import { Effect } from "effect"
import { BenchFailed } from "./harness.ts"

export interface LoadOptions {
  readonly url: string
  readonly connections: number
  readonly key?: string
  /** Headers of every request. */
  readonly headers?: Readonly<Record<string, string>>
  /** Returns request number `n`, counted from 0. */
  readonly request: (n: number) => { readonly method: string; readonly path: string; readonly body?: string }
  /** Stops after this number of requests, or before the next one after this many milliseconds. */
  readonly requests?: number
  readonly millis?: number
  /** The expected status of every response. */
  readonly status: number
}

export interface LoadResult {
  readonly requests: number
  readonly perSecond: number
  /** Milliseconds to the last byte of a response. */
  readonly p50: number
  readonly p99: number
}

const headEnd = Buffer.from("\r\n\r\n")
const lastChunk = Buffer.from("0\r\n\r\n")

/** Finds the end of a response. */
export class Reader {
  #head: Buffer | undefined = undefined
  #left = 0
  #chunked = false
  status = 0
  /** Whether the server closes the connection after this response. */
  last = false

  /** Returns whether the response is complete with this chunk. */
  read(chunk: Buffer): boolean {
    if (this.#left > 0) {
      this.#left -= chunk.length
      return this.#left <= 0
    }
    if (this.#chunked) return this.#endOfChunks(chunk)
    const seen: Buffer = this.#head === undefined ? chunk : Buffer.concat([this.#head, chunk])
    const end = seen.indexOf(headEnd)
    if (end === -1) {
      this.#head = seen
      return false
    }
    this.#head = undefined
    const head = seen.toString("latin1", 0, end)
    this.status = Number(head.slice(9, 12))
    this.last = /\r\nconnection: *close/i.test(head)
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    if (length !== undefined) {
      this.#left = Number(length) - (seen.length - end - headEnd.length)
      return this.#left <= 0
    }
    if (this.status === 204 || this.status === 304) return true
    this.#chunked = true
    return this.#endOfChunks(seen.subarray(end + headEnd.length))
  }

  /** A server that answers one request at a time ends its packet with the last chunk. */
  #endOfChunks(body: Buffer): boolean {
    this.#chunked = !body.subarray(-lastChunk.length).equals(lastChunk)
    return !this.#chunked
  }
}

export const percentile = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN

/** Runs the load; fails on a response with another status or a broken connection. */
export const load = (options: LoadOptions): Effect.Effect<LoadResult, BenchFailed> =>
  Effect.callback((resume) => {
    const { hostname, port } = new URL(options.url)
    const headers = Object.entries({
      ...(options.key === undefined ? {} : { authorization: `Bearer ${options.key}` }),
      ...options.headers
    })
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join("")
    const limit = options.requests ?? Number.POSITIVE_INFINITY
    const latencies: Array<number> = []
    const sockets: Array<Socket> = []
    let sent = 0
    let ready = 0
    let running = options.connections
    let began = 0
    let deadline = 0

    const end = (outcome: Effect.Effect<LoadResult, BenchFailed>) => {
      for (const socket of sockets) socket.destroy()
      resume(outcome)
    }
    const fail = (message: string) =>
      end(Effect.fail(new BenchFailed({ message: `${options.url}: ${message}` })))
    const finish = () => {
      const seconds = (performance.now() - began) / 1000
      const sorted = latencies.toSorted((a, b) => a - b)
      const requests = sorted.length
      const figures = { p50: percentile(sorted, 0.5), p99: percentile(sorted, 0.99) }
      end(Effect.succeed({ requests, perSecond: requests / seconds, ...figures }))
    }

    const open = (replaces: boolean) => {
      const socket = connect(Number(port), hostname)
      const reader = new Reader()
      let started = 0
      const next = () => {
        started = performance.now()
        if (sent >= limit || started >= deadline) {
          running -= 1
          if (running === 0) finish()
          return
        }
        const { method, path, body } = options.request(sent++)
        const content =
          body === undefined
            ? "\r\n"
            : `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
        socket.write(`${method} ${path} HTTP/1.1\r\nHost: ${hostname}:${port}\r\n${headers}${content}`)
      }
      socket.setNoDelay(true)
      socket.on("data", (chunk: Buffer) => {
        if (!reader.read(chunk)) return
        if (reader.status !== options.status)
          return fail(`status ${reader.status}: ${chunk.toString().slice(0, 500)}`)
        latencies.push(performance.now() - started)
        if (reader.last) open(true)
        else next()
      })
      socket.on("error", (error) => fail(error.message))
      socket.on("end", () => {
        if (!reader.last) fail("the connection was closed")
      })
      socket.once("connect", () => {
        if (replaces) return next()
        ready += 1
        if (ready < options.connections) return
        began = performance.now()
        deadline = began + (options.millis ?? Number.POSITIVE_INFINITY)
        for (const start of starts) start()
      })
      starts.push(next)
      sockets.push(socket)
    }
    const starts: Array<() => void> = []
    for (let i = 0; i < options.connections; i++) open(false)
    return Effect.sync(() => {
      for (const socket of sockets) socket.destroy()
    })
  })

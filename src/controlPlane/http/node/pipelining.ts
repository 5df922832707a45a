import { type IncomingMessage, type Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Server as TlsServer } from "node:tls"
import { freeMemory } from "../../../shared/work/freeMemory.ts"

// The platform passes any body of a raw response on; the parameters of Node.js are overloads.
type End = Parameters<ServerResponse["end"]>
type WriteHead = Parameters<ServerResponse["writeHead"]>

const isBytes = (body: unknown): body is string | Uint8Array =>
  typeof body === "string" || body instanceof Uint8Array

const BODILESS = [204, 304]

/** Head and body leave in one system call, with others of this turn: a write to an awake client is cheap. */
export class WholeResponse<
  Request extends IncomingMessage = IncomingMessage
> extends ServerResponse<Request> {
  #announced: number | undefined
  #held: ReadonlyArray<unknown> | undefined

  override writeHead(...given: ReadonlyArray<unknown>): this {
    const headers = given.at(-1)
    if (typeof headers === "object" && headers !== null && "content-length" in headers)
      this.#announced = Number(headers["content-length"])
    return super.writeHead(...(given as WriteHead))
  }

  override end(...given: ReadonlyArray<unknown>): this {
    this.leave()
    if (!this.#isWhole(given[0])) return super.end(...(given as End))
    // Node.js writes an empty piece after a body whose length it checks.
    this.strictContentLength = false
    this.#held = given
    if (waiting.push(this) === 1) setImmediate(leaveAll)
    return this
  }

  /** Whether nothing was written yet, and the body is the announced one. */
  #isWhole(body: unknown): boolean {
    return body === undefined
      ? BODILESS.includes(this.statusCode)
      : isBytes(body) && this.strictContentLength && Buffer.byteLength(body) === this.#announced
  }

  /** Writes the response now, if it waits for the others. */
  leave(): void {
    const given = this.#held
    if (given === undefined) return
    this.#held = undefined
    super.end(...(given as End))
  }
}

let waiting: Array<WholeResponse> = []

const leaveAll = () => {
  const responses = waiting
  waiting = []
  for (const response of responses) response.leave()
}

/** Unanswered requests of a connection after which it is not read further. */
export const MOST_UNANSWERED = 8

/** Event of a server for each connection whose requests cannot be bounded; the connection is destroyed. */
export const UNGATED = "muster-ungated"

const HEAD_END = "\r\n\r\n"
/** The length of `GET / HTTP/1.0`: no head ends earlier. */
const SHORTEST_HEAD = 14

/** The bytes up to the end of the next head: at most one request begins in them. */
const upToHeadEnd = (bytes: Buffer<ArrayBuffer>): Buffer<ArrayBuffer> => {
  const end = bytes.indexOf(HEAD_END, SHORTEST_HEAD)
  return end === -1 ? bytes : bytes.subarray(0, end + HEAD_END.length)
}

/** Whether bytes after the head of a request only belong to its body: no other request begins in them. */
const isBody = (bytes: Buffer, request: IncomingMessage | undefined): boolean =>
  request?.complete === false && bytes.length <= Number(request.headers["content-length"])

/** A `Set` that changes with each request would leak: V8 links each old table to its next one. */
export const removeFrom = <A>(items: Array<A>, item: A): void => {
  const at = items.indexOf(item)
  if (at !== -1) items.splice(at, 1)
}

/** A queue of work: each turn of the event loop does one piece, so that other requests are not delayed. */
const makeTurns = () => {
  const waiting = new Set<() => void>()
  let scheduled = false
  const schedule = () => {
    if (scheduled || waiting.size === 0) return
    scheduled = true
    setImmediate(run)
  }
  const run = () => {
    scheduled = false
    const [work] = waiting
    if (work === undefined) return
    waiting.delete(work)
    work()
    schedule()
  }
  return {
    add: (work: () => void) => {
      waiting.add(work)
      schedule()
    },
    remove: (work: () => void) => waiting.delete(work)
  }
}

type Turns = ReturnType<typeof makeTurns>

/** Passes one request at a time to the parser; pauses the connection while too many are unanswered. */
const gateOf = (socket: Socket, turns: Turns, mostRequests: number) => {
  // The listeners of the HTTP server for the new connection.
  const [parse] = socket.listeners("data")
  const parseEnd = socket.listeners("end").at(-1)
  if (parse === undefined || parseEnd === undefined) return undefined

  // No Set: see `removeFrom`.
  const unanswered: Array<ServerResponse> = []
  let rest: Buffer<ArrayBuffer> | undefined
  let ended = false
  /** The connection is paused by the gate. */
  let held = false
  /** The HTTP server has paused the connection: a body or the responses are not read. */
  let blocked = false
  let newest: IncomingMessage | undefined
  let begun = false
  let upgrading: IncomingMessage | undefined
  let requests = 0

  const mustWait = () => {
    if (unanswered.length === 0) return false
    // The body of the only request: its response may need it.
    if (unanswered.length === 1 && newest?.complete === false) return false
    // The connection ends with the response to the last request.
    if (requests >= mostRequests) return true
    if (unanswered.length >= MOST_UNANSWERED || socket.writableNeedDrain) return true
    let bytes = 0
    for (const response of unanswered) bytes += response.writableLength
    return bytes >= socket.writableHighWaterMark
  }
  const hold = () => {
    held = true
    socket.pause()
  }
  /** Writes the responses that wait for others: this side of the connection is about to end. */
  const leave = () => {
    for (const response of unanswered) if (response instanceof WholeResponse) response.leave()
  }
  /** Node.js ends its side with the client's. */
  const passEnd = () => {
    leave()
    parseEnd.call(socket)
  }
  const handOver = () => {
    while (rest !== undefined && !socket.destroyed) {
      if (mustWait()) return hold()
      const bytes = upToHeadEnd(rest)
      rest = bytes.length === rest.length ? undefined : rest.subarray(bytes.length)
      begun = false
      parse.call(socket, bytes)
      if (upgrading?.complete === true) release()
      if (rest === undefined) break
      if (socket.isPaused()) {
        blocked = true
        return
      }
      if (begun && !isBody(rest, newest)) {
        hold()
        return turns.add(takeTurn)
      }
    }
    if (rest === undefined && ended) passEnd()
  }
  const takeTurn = () => {
    if (rest === undefined || blocked || socket.destroyed || mustWait()) return
    held = false
    socket.resume()
    handOver()
  }
  const onData = (chunk: Buffer<ArrayBuffer>) => {
    const waits = rest !== undefined
    rest = rest === undefined ? chunk : Buffer.concat([rest, chunk])
    if (waits) hold()
    else handOver()
    // The parser has passed on a copy of these bytes of a body.
    if (rest === undefined && newest?.complete === false && upgrading === undefined) freeMemory(chunk)
  }
  const onEnd = () => {
    ended = true
    if (rest === undefined) passEnd()
  }
  const onResume = () => {
    // An earlier `resume`, followed by a `pause`.
    if (socket.isPaused()) return
    blocked = false
    if (rest === undefined) return
    hold()
    turns.add(takeTurn)
  }
  const wake = () => {
    if (held) turns.add(takeTurn)
  }
  const release = () => {
    socket.off("data", onData).off("end", onEnd).off("resume", onResume).off("drain", wake)
    turns.remove(takeTurn)
    if (rest !== undefined) socket.unshift(rest)
    rest = undefined
    upgrading = undefined
  }

  // With a listener of its own, Node.js passes the bytes to listeners, not to its parser.
  socket.on("data", onData).on("end", onEnd).on("resume", onResume).on("drain", wake)
  socket.off("data", parse as () => void).off("end", parseEnd as () => void)
  socket.once("close", () => {
    rest = undefined
    turns.remove(takeTurn)
  })

  return {
    begin: (request: IncomingMessage, response: ServerResponse) => {
      begun = true
      newest = request
      requests += 1
      // Node.js itself only announces the end, and responds to later requests without a body.
      if (requests >= mostRequests) response.shouldKeepAlive = false
      unanswered.push(response)
      response.on("close", () => {
        removeFrom(unanswered, response)
        wake()
      })
    },
    /** The connection changes to another protocol now, or after the body of the request. */
    upgrade: (request: IncomingMessage) => {
      if (request.complete) release()
      else upgrading = request
    },
    discard: () => {
      leave()
      rest = undefined
      release()
      socket.resume()
    }
  }
}

/** Bounds the requests of a connection that are in progress, however many the client pipelines. */
export const boundPipelining = (server: Server) => {
  const turns = makeTurns()
  const gates = new WeakMap<Duplex, NonNullable<ReturnType<typeof gateOf>>>()
  server.on(server instanceof TlsServer ? "secureConnection" : "connection", (socket: Socket) => {
    const gate = gateOf(socket, turns, server.maxRequestsPerSocket ?? Number.POSITIVE_INFINITY)
    if (gate !== undefined) return void gates.set(socket, gate)
    // An HTTP server of another Node.js version: without bounds, a peer could use all memory.
    socket.destroy()
    server.emit(UNGATED)
  })
  for (const event of ["request", "checkContinue"] as const) {
    server.prependListener(event, (request: IncomingMessage, response: ServerResponse) =>
      gates.get(request.socket)?.begin(request, response)
    )
  }
  for (const event of ["upgrade", "connect"] as const) {
    server.prependListener(event, (request: IncomingMessage) => gates.get(request.socket)?.upgrade(request))
  }
  return {
    discard: (socket: Duplex) => gates.get(socket)?.discard()
  }
}

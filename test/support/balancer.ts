/** A load balancer for tests: it sends requests to ready replicas over keep-alive connections. */
import { Agent, type IncomingMessage, request } from "node:http"
import { Effect, Schedule, type Scope } from "effect"
import WebSocket from "ws"
import { eventually } from "./eventually.ts"

const PROBE = "20 millis"

/** The end of a request: a status, or an error. */
export interface Outcome {
  readonly url: string
  readonly status: number | undefined
  readonly text: string
  /** The error code if there was no response. */
  readonly error: string | undefined
}

const ask = (
  url: string,
  options: {
    readonly method?: string
    readonly headers?: Record<string, string>
    readonly body?: string
    readonly agent?: Agent
  }
): Effect.Effect<Outcome> =>
  Effect.callback<Outcome>((resume) => {
    const fail = (error: NodeJS.ErrnoException) =>
      resume(Effect.succeed({ url, status: undefined, text: "", error: error.code ?? error.message }))
    const sent = request(url, { agent: false, ...options }, (response) => {
      let text = ""
      response.setEncoding("utf8")
      response.on("data", (chunk: string) => {
        text += chunk
      })
      response.on("error", fail)
      response.on("end", () =>
        resume(Effect.succeed({ url, status: response.statusCode, text, error: undefined }))
      )
    })
    sent.on("error", fail)
    sent.end(options.body)
  })

/**
 * @param urls             of the replicas; the array may change
 * @param options.failOpen if no replica is ready, use all of them, as many balancers do; otherwise requests wait
 */
export const makeBalancer = Effect.fnUntraced(function* (
  key: string,
  urls: () => ReadonlyArray<string>,
  options: { readonly failOpen?: boolean } = {}
) {
  const ready = new Set<string>()
  const probe = (url: string) =>
    Effect.map(ask(`${url}/readyz`, {}), ({ status }) => {
      if (status === 200) ready.add(url)
      else ready.delete(url)
    })
  const probeAll = Effect.suspend(() => Effect.forEach(urls(), probe, { concurrency: "unbounded" }))
  yield* Effect.forkScoped(Effect.repeat(probeAll, Schedule.spaced(PROBE)))

  let turn = 0
  const usable = () => {
    const there = urls().filter((url) => ready.has(url))
    return there.length === 0 && options.failOpen === true ? urls() : there
  }
  /** Waits until a replica is ready and chooses round-robin. */
  const pick = Effect.suspend(() =>
    eventually(Effect.sync(usable), (there) => there.length > 0, "60 seconds")
  ).pipe(
    Effect.orDie,
    Effect.map((there) => there[turn++ % there.length] ?? "")
  )

  /** A client with its own connections and one request at a time. */
  const client = Effect.gen(function* () {
    const agent = yield* Effect.acquireRelease(
      Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 1 })),
      (it) => Effect.sync(() => it.destroy())
    )
    return (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
      Effect.flatMap(pick, (url) =>
        ask(`${url}${path}`, {
          method,
          agent,
          headers: { authorization: `Bearer ${key}`, ...headers },
          ...(body === undefined ? {} : { body: JSON.stringify(body) })
        })
      )
  })

  return { pick, client }
})

export type Balancer = Effect.Success<ReturnType<typeof makeBalancer>>

/** An event of a stream, with its cursor. */
export interface StreamEvent {
  readonly cursor: number
  readonly text: string
}

/** A subscriber that resumes from its last cursor whenever its stream ends. */
export interface Subscriber {
  readonly received: () => ReadonlyArray<StreamEvent>
  /**
   * The end of each stream: the close code of a WebSocket, or whether the SSE body ended complete and between two
   * events.
   */
  readonly endings: () => ReadonlyArray<string | number>
  /** The number of opened WebSocket streams. */
  readonly opened: () => number
}

const headersOf = (key: string) => ({ authorization: `Bearer ${key}` })

/**
 * @param where the replica at which the next stream is opened
 * @param options.resume false: without a cursor
 */
export const subscriber = Effect.fnUntraced(function* (
  kind: "sse" | "websocket",
  key: string,
  where: Effect.Effect<string>,
  options: { readonly resume?: boolean } = {}
): Effect.fn.Return<Subscriber, never, Scope.Scope> {
  const received: Array<StreamEvent> = []
  const endings: Array<string | number> = []
  const query = () => (options.resume === false ? "" : `?cursor=${received.at(-1)?.cursor ?? 0}`)
  let opened = 0

  const sse = (url: string) =>
    Effect.callback<string>((resume) => {
      let rest = ""
      const sent = request(
        `${url}/api/events${query()}`,
        { agent: false, headers: headersOf(key) },
        (response: IncomingMessage) => {
          response.setEncoding("utf8")
          response.on("data", (chunk: string) => {
            const blocks = (rest + chunk).split("\n\n")
            rest = blocks.pop() ?? ""
            for (const block of blocks) {
              const match = /^id: (\d+)\nevent: \w+\ndata: (.*)$/.exec(block)
              if (match?.[2] !== undefined) received.push({ cursor: Number(match[1]), text: match[2] })
            }
          })
          response.on("error", () => {})
          response.on("close", () =>
            resume(
              Effect.succeed(
                response.statusCode !== 200
                  ? `status ${response.statusCode}`
                  : response.complete && rest === ""
                    ? "complete"
                    : "cut"
              )
            )
          )
        }
      )
      sent.on("error", (error: NodeJS.ErrnoException) => resume(Effect.succeed(error.code ?? "error")))
      sent.end()
      return Effect.sync(() => sent.destroy())
    })

  const websocket = (url: string) =>
    Effect.callback<string | number>((resume) => {
      const socket = new WebSocket(`${url.replace("http", "ws")}/api/events/ws${query()}`, {
        headers: headersOf(key)
      })
      socket.on("open", () => {
        opened += 1
      })
      socket.on("message", (data) => {
        const { Cursor, ...message } = JSON.parse(data.toString())
        received.push({ cursor: Cursor ?? 0, text: JSON.stringify(message) })
      })
      socket.on("error", (error: NodeJS.ErrnoException) =>
        resume(Effect.succeed(error.code ?? error.message))
      )
      socket.on("close", (code) => resume(Effect.succeed(code)))
      return Effect.sync(() => socket.terminate())
    })

  yield* where.pipe(
    Effect.flatMap(kind === "sse" ? sse : websocket),
    Effect.tap((ending) => Effect.sync(() => endings.push(ending))),
    Effect.forever,
    Effect.forkScoped
  )
  return { received: () => received, endings: () => endings, opened: () => opened }
})

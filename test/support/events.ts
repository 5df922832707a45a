/** Clients of the event stream of a running service. */
import { type IncomingMessage, request } from "node:http"
import { connect, type Socket } from "node:net"
import { Effect, Schema, type Scope } from "effect"
import { ServerEvent } from "../../src/contract/domain/ServerEvent.ts"
import { eventually } from "./eventually.ts"
import { type Service, ServiceFailed } from "./Service.ts"

type Api = Pick<Service, "url" | "key">

const decodeEvent = Schema.decodeUnknownSync(Schema.fromJsonString(ServerEvent))

export interface EventStream {
  /** The events received so far. */
  readonly events: () => ReadonlyArray<ServerEvent>
  /** The events of one server in short form: the status, `crash <reason>`, `install <phase> <step>`, `deleted`,
   * or the topic with its payload. */
  readonly of: (server_id: string) => ReadonlyArray<string>
  readonly ended: () => boolean
  /** The received JSON, one event a line, without the sanitizing of {@link events}. */
  readonly text: () => string
}

const brief = (event: ServerEvent): string =>
  event.Topic === "status"
    ? event.Data.payload
    : event.Topic === "crash"
      ? `crash ${event.Data.payload.reason}`
      : event.Topic === "install"
        ? ["install", event.Data.payload.phase, event.Data.payload.step ?? ""].join(" ").trimEnd()
        : event.Topic === "deleted"
          ? "deleted"
          : `${event.Topic} ${JSON.stringify(event.Data.payload)}`

/** Subscribes over SSE and returns after the first comment, so that no later event is missed. */
export const subscribe = (
  api: Api,
  path = "/api/events",
  options: { readonly key?: null } = {}
): Effect.Effect<EventStream, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const sent = request(`${api.url}${path}`, {
      headers: {
        ...(options.key === null ? {} : { authorization: `Bearer ${api.key}` }),
        accept: "text/event-stream"
      },
      agent: false
    }).end()
    yield* Effect.addFinalizer(() => Effect.sync(() => sent.destroy()))
    const response = yield* Effect.callback<IncomingMessage, ServiceFailed>((resume) => {
      sent.on("error", (error) => resume(Effect.fail(new ServiceFailed({ message: `${path}: ${error}` }))))
      sent.once("response", (it) => resume(Effect.succeed(it)))
    })
    const events: Array<ServerEvent> = []
    const raw: Array<string> = []
    let connected = false
    let ended = false
    let rest = ""
    response.setEncoding("utf8")
    response.on("error", () => {})
    response.on("close", () => {
      ended = true
    })
    response.on("data", (chunk: string) => {
      const blocks = (rest + chunk).split("\n\n")
      rest = blocks.pop() ?? ""
      for (const block of blocks) {
        if (block === ": connected") connected = true
        for (const line of block.split("\n")) {
          if (line.startsWith("data: ")) {
            const id = /^id: (\d+)$/m.exec(block)?.[1]
            raw.push(line.slice("data: ".length))
            const event = decodeEvent(line.slice("data: ".length))
            events.push(id === undefined ? event : { ...event, Cursor: Number(id) })
          }
        }
      }
    })
    yield* eventually(
      Effect.sync(() => connected),
      (it) => it
    )
    return {
      events: () => events,
      of: (server_id) => events.filter((event) => event.Data.server_id === server_id).map(brief),
      ended: () => ended,
      text: () => raw.join("\n")
    }
  })

/** Returns all retained events up to the cursor `newest` of an event, as a subscriber with `cursor=0` receives them. */
export const replay = (api: Api, newest: number): Effect.Effect<ReadonlyArray<ServerEvent>, ServiceFailed> =>
  Effect.scoped(
    Effect.gen(function* () {
      const stream = yield* subscribe(api, "/api/events?cursor=0")
      const upTo = () => stream.events().filter((event) => (event.Cursor ?? 0) <= newest)
      yield* eventually(
        Effect.sync(() => stream.events().at(-1)?.Cursor ?? 0),
        (cursor) => cursor >= newest
      )
      return upTo()
    })
  )

/** Waits until the events of a server are exactly these. */
export const eventsAre = (stream: EventStream, id: string, expected: ReadonlyArray<string>) =>
  eventually(
    Effect.sync(() => stream.of(id)),
    (seen) => JSON.stringify(seen) === JSON.stringify(expected)
  )

/** A connection that requests the event stream and then reads nothing. */
export const stalledSubscriber = (api: Api): Effect.Effect<Socket, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const { hostname, port } = new URL(api.url)
      const socket = connect({ host: hostname, port: Number(port) }, () => {
        socket.write(
          `GET /api/events HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${api.key}\r\n\r\n`
        )
        resume(Effect.succeed(socket))
      })
      socket.pause()
      socket.on("error", () => {})
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

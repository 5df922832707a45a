/** Transfers of files: neither size nor time bounds a body while its bytes move (spec 10.3). */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Clock, Duration, Effect, Stream } from "effect"
import { Headers, HttpBody, HttpServerRequest, HttpServerResponse } from "effect/http"
import { TimedOut, Unauthorized } from "../../contract/domain/errors.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"
import { unboundArrival } from "./node/clients.ts"
import { KeyEnds, type Principal } from "./Principal.ts"

/** Time without a byte after which a transfer ends. */
export const STALLED = Duration.seconds(60)

/** The progress of a body. `since`: when the next bytes were due, of {@link elapsedMillisOf}; unset: none are due. */
interface Progress {
  since: number | undefined
}

type Request = HttpServerRequest.HttpServerRequest

/** Notes since when a reader waits for bytes: none are due while it works with the last ones. */
const watchPulls = <A, E, R>(stream: Stream.Stream<A, E, R>, progress: Progress, now: () => number) =>
  Stream.transformPull(stream, (pull) =>
    Effect.succeed(
      Effect.suspend(() => {
        progress.since = now()
        return Effect.ensuring(
          pull,
          Effect.sync(() => {
            progress.since = undefined
          })
        )
      })
    )
  )

/** Whether the head of a request announces no byte: Node.js emits no event of such a body. */
const isEmpty = ({ headers }: Request): boolean =>
  headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0

/** Ends the connection of a response to a body that has not arrived: no time bounds the rest of it. */
export const closeUnlessArrived = (request: Request, response: HttpServerResponse.HttpServerResponse) =>
  NodeHttpServerRequest.toIncomingMessage(request).complete
    ? response
    : HttpServerResponse.setHeader(response, "connection", "close")

/** @param stalled time without a byte after which a transfer ends; default: {@link STALLED} */
export const makeTransfers = Effect.fnUntraced(function* (stalled: Duration.Duration = STALLED) {
  const scope = yield* Effect.scope
  const clock = yield* Clock.Clock
  const keyEnds = yield* KeyEnds
  const longest = Duration.toMillis(stalled)
  const now = () => elapsedMillisOf(clock)

  const isStalled = Effect.fnUntraced(function* (progress: Progress) {
    for (let idle = 0; idle < longest; idle = progress.since === undefined ? 0 : now() - progress.since)
      yield* Effect.sleep(Duration.millis(longest - idle))
  })

  const noProgress = new TimedOut({
    detail: `no byte was transferred for ${longest / 1000} s`,
    hint: "Nothing was changed. Check the connection, then send the file again."
  })

  /** Fails once a transfer must end: its key is no longer valid, or no byte moves. */
  const mustEnd = (principal: Principal | undefined, progress: Progress) =>
    Effect.raceFirst(
      Effect.andThen(keyEnds(principal), Effect.fail(Unauthorized.keyEnded())),
      Effect.andThen(isStalled(progress), Effect.fail(noProgress))
    )

  return {
    /** Runs a handler that reads the body as it arrives, for as long as bytes arrive. A closed connection interrupts it. */
    receiving: <E, R>(
      request: Request,
      principal: Principal | undefined,
      app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
    ) =>
      Effect.suspend(() => {
        unboundArrival(request)
        const progress: Progress = { since: now() }
        const typed = request.modify({
          headers: Headers.set(request.headers, "content-type", "application/octet-stream")
        })
        const received: Request = Object.defineProperty(typed, "stream", {
          value: isEmpty(request) ? Stream.empty : watchPulls(typed.stream, progress, now)
        })
        return Effect.raceFirst(
          Effect.provideService(app, HttpServerRequest.HttpServerRequest, received),
          mustEnd(principal, progress)
        )
      }),
    /** Closes the connection of a streamed response once its transfer must end; a peer that reads nothing is bounded already. */
    sending: Effect.fnUntraced(function* (
      request: Request,
      principal: Principal | undefined,
      response: HttpServerResponse.HttpServerResponse
    ) {
      const { body } = response
      if (body._tag !== "Stream" || request.method === "HEAD") return response
      const progress: Progress = { since: undefined }
      const { socket } = NodeHttpServerRequest.toIncomingMessage(request)
      const sent = NodeHttpServerRequest.toServerResponse(request)
      const closed = Effect.callback<void>((resume) => {
        const done = () => resume(Effect.void)
        if (sent.closed) return done()
        sent.once("close", done)
        return Effect.sync(() => sent.off("close", done))
      })
      yield* Effect.raceFirst(closed, mustEnd(principal, progress)).pipe(
        Effect.catch(({ detail }) =>
          Effect.andThen(
            Effect.logInfo(`closed a connection that receives a file: ${detail}`),
            Effect.sync(() => socket.destroy())
          )
        ),
        Effect.forkIn(scope)
      )
      return HttpServerResponse.setBody(
        response,
        HttpBody.stream(watchPulls(body.stream, progress, now), body.contentType, body.contentLength)
      )
    })
  } as const
})

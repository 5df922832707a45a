import { Agent, get, request } from "node:http"
import type Docker from "dockerode"
import { Context, Data, Effect, Layer } from "effect"

/** A call that the Docker engine refused or did not answer; `status` is absent where nothing answered. */
export class EngineError extends Data.TaggedError("EngineError")<{
  readonly status: number | undefined
  readonly message: string
}> {}

const fieldOf = (value: unknown, key: string): unknown =>
  typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined

const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined)

const unreachable: Readonly<Record<string, string>> = {
  ENOENT: "no such socket",
  ECONNREFUSED: "connection refused",
  EACCES: "permission denied",
  ECONNRESET: "connection lost",
  EPIPE: "connection lost"
}

const toEngineError = (socket: string, what: string, cause: unknown): EngineError => {
  const status = fieldOf(cause, "statusCode")
  const said = textOf(fieldOf(fieldOf(cause, "json"), "message")) ?? textOf(fieldOf(cause, "message"))
  if (typeof status === "number") {
    // The client puts its own words before those of the engine where it has not read them as JSON.
    const words = said?.replace(/^\(HTTP code \d+\) [^-]*- /, "").trim()
    return new EngineError({ status, message: `${what}: ${words ?? status}` })
  }
  const reason = unreachable[textOf(fieldOf(cause, "code")) ?? ""] ?? said ?? String(cause)
  return new EngineError({
    status: undefined,
    message: `the Docker engine does not answer at ${socket}: ${reason}`
  })
}

/** Longest time for calls that the engine answers at once, in ms; a machine that starts many containers is slow. */
const PATIENCE = 60_000
const PING = 3000

/** Whether an engine speaks version 1.41 of the interface (Docker 20.10), as far as it says what it speaks. */
const isRecent = (version: string | ReadonlyArray<string> | undefined): boolean => {
  const [, major, minor] = /^(\d+)\.(\d+)$/.exec(String(version)) ?? []
  return major === undefined || Number(major) * 1000 + Number(minor) >= 1041
}

/** The connection to a Docker engine. Nothing is kept open between calls. */
export class Engine extends Context.Service<
  Engine,
  {
    /** Path of its socket. */
    readonly socket: string
    /** A call with a deadline. `what` names it in people's words. */
    call<A>(
      what: string,
      run: (docker: Docker, abortSignal: AbortSignal) => Promise<A>
    ): Effect.Effect<A, EngineError>
    /** A call that may wait for as long as it takes. */
    wait<A>(
      what: string,
      run: (docker: Docker, abortSignal: AbortSignal) => Promise<A>
    ): Effect.Effect<A, EngineError>
    /**
     * Returns when a container has ended, or when nothing more is known of it: the engine went away, or has never
     * known it. The client would wait for ever for the rest of an answer that broke off.
     */
    ended(container: string): Effect.Effect<void, EngineError>
    /** Fails, and says why, when the engine does not answer now. Cheap where there is none. */
    readonly ping: Effect.Effect<void, EngineError>
    /** Whether it has answered since this service started. */
    readonly hasAnswered: () => boolean
  }
>()("muster/daemon/runtime/docker/Engine") {
  /** @param options.socket path of the engine's socket, usually `/var/run/docker.sock` */
  static readonly layer = (options: { readonly socket: string }) =>
    Layer.sync(Engine, () => {
      const { socket } = options
      // Without kept connections an engine that was restarted is never met through a dead one.
      const connection = { socketPath: socket, agent: new Agent({ keepAlive: false }) }
      let answered = false
      let loaded: Docker | undefined

      const within = (ms: number) => {
        const orElse = () => Effect.fail(toEngineError(socket, "call", { message: `nothing in ${ms} ms` }))
        return <A>(effect: Effect.Effect<A, EngineError>) =>
          Effect.timeoutOrElse(effect, { duration: ms, orElse })
      }

      const ended = (container: string) =>
        Effect.callback<void, EngineError>((resume) => {
          const path = `/containers/${encodeURIComponent(container)}/wait`
          const sent = request({ ...connection, method: "POST", path }, (response) => {
            response.resume()
            for (const end of ["end", "close", "error"]) response.on(end, () => resume(Effect.void))
          })
          sent.on("error", (cause) => resume(Effect.fail(toEngineError(socket, "wait", cause))))
          sent.end()
          return Effect.sync(() => sent.destroy())
        })

      const ping = Effect.callback<void, EngineError>((resume) => {
        const sent = get({ ...connection, path: "/_ping" }, (response) => {
          response.resume()
          const { statusCode, headers } = response
          if (statusCode !== 200) {
            const cause = { message: `status ${statusCode}` }
            return resume(Effect.fail(toEngineError(socket, "ping", cause)))
          }
          if (!isRecent(headers["api-version"])) {
            const message = `the Docker engine at ${socket} is too old: 20.10 or newer is needed`
            return resume(Effect.fail(new EngineError({ status: undefined, message })))
          }
          answered = true
          resume(Effect.void)
        })
        sent.on("error", (cause) => resume(Effect.fail(toEngineError(socket, "ping", cause))))
        return Effect.sync(() => sent.destroy())
      }).pipe(within(PING))

      /** Loaded with the first call to an engine that is there: nodes without one do without it. */
      const client = Effect.suspend(() =>
        loaded !== undefined
          ? Effect.succeed(loaded)
          : Effect.andThen(
              ping,
              Effect.map(
                Effect.promise(() => import("dockerode")),
                ({ default: Client }) => {
                  loaded ??= new Client(connection)
                  return loaded
                }
              )
            )
      )
      const wait = <A>(what: string, run: (docker: Docker, signal: AbortSignal) => Promise<A>) =>
        Effect.flatMap(client, (docker) =>
          Effect.tryPromise({
            try: (signal) => run(docker, signal),
            catch: (cause) => toEngineError(socket, what, cause)
          })
        )
      return Engine.of({
        socket,
        wait,
        ended,
        call: (what, run) => within(PATIENCE)(wait(what, run)),
        ping,
        hasAnswered: () => answered
      })
    })
}

/** Turns "there is no such container" into a value. */
export const orGone =
  <B>(fallback: B) =>
  <A>(self: Effect.Effect<A, EngineError>): Effect.Effect<A | B, EngineError> =>
    Effect.catch(self, (error) => (error.status === 404 ? Effect.succeed(fallback) : Effect.fail(error)))

/** Ignores that it is so already (304), just happening (409), or that there is no such container (404). */
export const orDone = (self: Effect.Effect<unknown, EngineError>): Effect.Effect<void, EngineError> =>
  Effect.catch(Effect.asVoid(self), (error) =>
    error.status !== undefined && [304, 404, 409].includes(error.status) ? Effect.void : Effect.fail(error)
  )

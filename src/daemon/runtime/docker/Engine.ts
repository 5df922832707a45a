import { Agent } from "node:http"
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
  if (typeof status === "number") return new EngineError({ status, message: `${what}: ${said ?? status}` })
  const reason = unreachable[textOf(fieldOf(cause, "code")) ?? ""] ?? said ?? String(cause)
  return new EngineError({
    status: undefined,
    message: `the Docker engine does not answer at ${socket}: ${reason}`
  })
}

/** Longest time for calls that the engine answers at once, in ms; a machine that starts many containers is slow. */
const PATIENCE = 60_000
const PING = 3000

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
    /** Fails, and says why, when the engine does not answer now. */
    readonly ping: Effect.Effect<void, EngineError>
  }
>()("muster/daemon/runtime/docker/Engine") {
  /** @param options.socket path of the engine's socket, usually `/var/run/docker.sock` */
  static readonly layer = (options: { readonly socket: string }) =>
    Layer.effect(
      Engine,
      Effect.gen(function* () {
        const { socket } = options
        // Loaded here: nodes without containers do without it.
        const { default: Client } = yield* Effect.promise(() => import("dockerode"))
        // Without kept connections an engine that was restarted is never met through a dead one.
        const connection = { socketPath: socket, agent: new Agent({ keepAlive: false }) }
        const docker = new Client(connection)
        const wait = <A>(what: string, run: (docker: Docker, signal: AbortSignal) => Promise<A>) =>
          Effect.tryPromise({
            try: (signal) => run(docker, signal),
            catch: (cause) => toEngineError(socket, what, cause)
          })
        const within = (ms: number) => {
          const orElse = () => Effect.fail(toEngineError(socket, "call", { message: `nothing in ${ms} ms` }))
          return <A>(effect: Effect.Effect<A, EngineError>) =>
            Effect.timeoutOrElse(effect, { duration: ms, orElse })
        }
        return Engine.of({
          socket,
          wait,
          call: (what, run) => within(PATIENCE)(wait(what, run)),
          ping: Effect.asVoid(within(PING)(wait("ping", (client) => client.ping())))
        })
      })
    )
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

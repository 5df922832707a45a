import { Agent, get, request } from "node:http"
import type Docker from "dockerode"
import { Context, Data, Effect, Layer } from "effect"

/** A failed call to the Docker engine; without `status`, there was no response. */
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
  const text = textOf(fieldOf(fieldOf(cause, "json"), "message")) ?? textOf(fieldOf(cause, "message"))
  if (typeof status === "number") {
    // The client adds a prefix if the response was not parsed as JSON.
    const reason = text?.replace(/^\(HTTP code \d+\) [^-]*- /, "").trim()
    return new EngineError({ status, message: `${what}: ${reason ?? status}` })
  }
  const reason = unreachable[textOf(fieldOf(cause, "code")) ?? ""] ?? text ?? String(cause)
  return new EngineError({
    status: undefined,
    message: `the Docker engine does not answer at ${socket}: ${reason}`
  })
}

/** The timeout of calls, in ms; a host that starts many containers is slow. */
const CALL_TIMEOUT = 60_000
const PING_TIMEOUT = 3000

/** Whether an engine supports version 1.41 of the API (Docker 20.10); an unknown version counts as supported. */
const isRecent = (version: string | ReadonlyArray<string> | undefined): boolean => {
  const [, major, minor] = /^(\d+)\.(\d+)$/.exec(String(version)) ?? []
  return major === undefined || Number(major) * 1000 + Number(minor) >= 1041
}

export class Engine extends Context.Service<
  Engine,
  {
    readonly socket: string
    /** Makes a call with a timeout. `what` names it in messages. */
    call<A>(
      what: string,
      run: (docker: Docker, abortSignal: AbortSignal) => Promise<A>
    ): Effect.Effect<A, EngineError>
    wait<A>(
      what: string,
      run: (docker: Docker, abortSignal: AbortSignal) => Promise<A>
    ): Effect.Effect<A, EngineError>
    /** Waits until a container has ended or is unknown, or the engine went down, as the client would hang. */
    ended(container: string): Effect.Effect<void, EngineError>
    /** Checks that the engine responds and is recent. @error EngineError why not */
    readonly ping: Effect.Effect<void, EngineError>
    readonly hasAnswered: () => boolean
  }
>()("muster/daemon/runtime/docker/Engine") {
  /** @param options.socket path of the engine's socket, usually `/var/run/docker.sock` */
  static readonly layer = (options: { readonly socket: string }) =>
    Layer.sync(Engine, () => {
      const { socket } = options
      // Without keep-alive, no call uses a dead connection after a restart of the engine.
      // Without a server name, Node.js looks whether its default is an IPv6 address, by a pattern that takes 4 ms to compile.
      const connection = { socketPath: socket, servername: "", agent: new Agent({ keepAlive: false }) }
      let answered = false
      let loaded: Docker | undefined

      const within = (ms: number) => {
        const orElse = () =>
          Effect.fail(toEngineError(socket, "call", { message: `no response in ${ms} ms` }))
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
      }).pipe(within(PING_TIMEOUT))

      /** Loaded with the first call to a running engine; nodes without an engine never load it. */
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
        call: (what, run) => within(CALL_TIMEOUT)(wait(what, run)),
        ping,
        hasAnswered: () => answered
      })
    })
}

export const onContainer = <A>(
  id: string,
  what: string,
  run: (container: Docker.Container, options: { readonly abortSignal: AbortSignal }) => Promise<A>
): Effect.Effect<A, EngineError, Engine> =>
  Effect.flatMap(Engine, (engine) =>
    engine.call(what, (docker, abortSignal) => run(docker.getContainer(id), { abortSignal }))
  )

export const inspect = (id: string) =>
  onContainer(id, "inspect the container", (container, options) => container.inspect(options))

/** Ends a stream of the engine, which the types of the client do not let be destroyed. */
export const destroy = (stream: NodeJS.ReadableStream): void => {
  if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy()
}

/** Reads a stream until it ends or fails; an interruption destroys it. */
export const readStream = (stream: NodeJS.ReadableStream, onData: (chunk: Buffer) => void) =>
  Effect.callback<void>((resume) => {
    stream.on("data", onData)
    for (const end of ["end", "close", "error"]) stream.on(end, () => resume(Effect.void))
    return Effect.sync(() => destroy(stream))
  })

/** Replaces "no such container" by a value. */
export const orNotFound =
  <B>(fallback: B) =>
  <A, R>(self: Effect.Effect<A, EngineError, R>): Effect.Effect<A | B, EngineError, R> =>
    Effect.catch(self, (error) => (error.status === 404 ? Effect.succeed(fallback) : Effect.fail(error)))

/** Ignores that the state is already reached (304), a conflict (409) and a missing container (404). */
export const orDone = <R>(
  self: Effect.Effect<unknown, EngineError, R>
): Effect.Effect<void, EngineError, R> =>
  Effect.catch(Effect.asVoid(self), (error) =>
    error.status !== undefined && [304, 404, 409].includes(error.status) ? Effect.void : Effect.fail(error)
  )

/** Returns whether the engine runs servers now, and logs the first result and every change. */
export const makeIsOffered = (engine: Engine["Service"], optional: boolean): Effect.Effect<boolean> => {
  let before: boolean | undefined
  return Effect.gen(function* () {
    const found = yield* Effect.result(engine.ping)
    const isUp = found._tag === "Success"
    if (isUp !== before) {
      const message = isUp
        ? `servers can run in containers: ${engine.socket} responds`
        : `servers cannot run in containers: ${found.failure.message}`
      yield* isUp || (optional && before === undefined) ? Effect.logInfo(message) : Effect.logWarning(message)
      before = isUp
    }
    return isUp
  })
}

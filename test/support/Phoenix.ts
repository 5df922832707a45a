import type { ChildProcess } from "node:child_process"
import { Effect, Exit, Latch, type Option, Scope } from "effect"
import { eventually } from "./eventually.ts"
import { type Answer, type RequestOptions, type Service, startService } from "./Service.ts"

/** A service that is killed again and again and comes back on the same data folder. */
export interface RestartingService {
  /** The service; waits while it is down. */
  readonly current: Effect.Effect<Service>
  /** None: the service died before it answered. */
  readonly send: (
    method: string,
    path: string,
    options?: RequestOptions
  ) => Effect.Effect<Option.Option<Answer>>
  /**
   * Kills it with SIGKILL and runs `meanwhile`, then starts it again; with `duringStart` that start, too, is killed
   * after so many milliseconds, if it has not come up by then.
   */
  readonly killAndRestart: (options?: {
    readonly meanwhile?: Effect.Effect<void>
    readonly duringStart?: number
  }) => Effect.Effect<void>
}

export const makeRestartingService = (options: {
  readonly dataDir: string
  readonly env: Record<string, string>
}): Effect.Effect<RestartingService, never, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const up = yield* Latch.make(false)

    /** One life of the service; undefined where `onSpawn` has ended it before it was up. */
    const live = Effect.fnUntraced(function* (onSpawn?: (child: ChildProcess) => void) {
      const life = yield* Scope.fork(scope)
      const started = yield* Effect.exit(
        Scope.provide(startService({ ...options, ...(onSpawn === undefined ? {} : { onSpawn }) }), life)
      )
      if (Exit.isSuccess(started)) return { life, service: started.value }
      yield* Scope.close(life, Exit.void)
      return onSpawn === undefined ? yield* Effect.die(started.cause) : undefined
    })

    const first = yield* live()
    if (first === undefined) return yield* Effect.die("unreachable: nothing ends the first start")
    let now = first
    yield* up.open
    const current = Effect.andThen(
      up.await,
      Effect.sync(() => now.service)
    )

    const startAgain = Effect.fnUntraced(function* (duringStart: number | undefined) {
      if (duringStart !== undefined) {
        const cut = yield* live((child) => setTimeout(() => child.kill("SIGKILL"), duringStart))
        if (cut !== undefined) {
          yield* Effect.orDie(
            eventually(
              Effect.sync(() => cut.service.process.signalCode),
              (signal) => signal === "SIGKILL"
            )
          )
          yield* Scope.close(cut.life, Exit.void)
        }
      }
      return yield* live()
    })

    return {
      current,
      send: (method, path, request) =>
        Effect.flatMap(current, (service) => Effect.option(service.request(method, path, request))),
      killAndRestart: ({ duringStart, meanwhile = Effect.void } = {}) =>
        Effect.gen(function* () {
          yield* up.close
          yield* now.service.kill("SIGKILL")
          yield* Scope.close(now.life, Exit.void)
          yield* meanwhile
          const next = yield* startAgain(duringStart)
          if (next === undefined) return yield* Effect.die("unreachable: nothing ends this start")
          now = next
          yield* up.open
        })
    } satisfies RestartingService
  })

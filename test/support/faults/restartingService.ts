import { Effect, type Option, type Scope } from "effect"
import { type Answer, ended, type RequestOptions, type Service, startService } from "../Service.ts"
import { restartable } from "./restartable.ts"

/** A service that is killed repeatedly and restarts on the same data folder. */
export interface RestartingService {
  /** The running service; waits while none runs. */
  readonly current: Effect.Effect<Service>
  /** Returns none if the service was killed before it responded. */
  readonly send: (
    method: string,
    path: string,
    options?: RequestOptions
  ) => Effect.Effect<Option.Option<Answer>>
  /**
   * Sends SIGKILL, runs `meanwhile`, then starts the service again; with `duringStart` the new process is also killed
   * after that many milliseconds.
   */
  readonly killAndRestart: (options?: {
    readonly meanwhile?: Effect.Effect<void>
    readonly duringStart?: number
  }) => Effect.Effect<void>
}

export const makeRestartingService = Effect.fnUntraced(function* (options: {
  readonly dataDir: string
  readonly env: Record<string, string>
}): Effect.fn.Return<RestartingService, never, Scope.Scope> {
  const { current, killed } = yield* Effect.orDie(restartable("the service", startService(options)))

  /** Starts the service and kills it after that many milliseconds. */
  const startCut = (millis: number) =>
    startService({ ...options, onSpawn: (child) => setTimeout(() => child.kill("SIGKILL"), millis) }).pipe(
      Effect.flatMap(({ process }) => ended(process)),
      Effect.ignore,
      Effect.scoped
    )

  return {
    current,
    send: (method, path, request) =>
      Effect.flatMap(current, (service) => Effect.option(service.request(method, path, request))),
    killAndRestart: ({ duringStart, meanwhile = Effect.void } = {}) =>
      Effect.gen(function* () {
        yield* killed.inject
        yield* meanwhile
        if (duringStart !== undefined) yield* startCut(duringStart)
        yield* killed.heal
      }).pipe(Effect.orDie)
  }
})

import { Effect, Fiber } from "effect"

/** The pause after a step with a defect. */
const RETRY = "1 second"

/** Forks work in a scope that outlives the caller. It runs at once, until it waits for the first time. */
export type Fork = (work: Effect.Effect<void>) => Fiber.Fiber<void>

/** Work that has a fiber only while there is something to do, so that an idle object holds none. */
export class OnDemand {
  #fiber: Fiber.Fiber<void> | undefined
  #state: "idle" | "running" | "stopped" = "idle"

  /**
   * Repeats a step while `more()`, also after a defect, unless in progress or stopped. The caller calls `start` when it
   * becomes true.
   */
  start(fork: Fork, more: () => boolean, step: Effect.Effect<void>): void {
    if (this.#state !== "idle" || !more()) return
    this.#state = "running"
    const end = () => {
      if (this.#state === "running") this.#state = "idle"
      this.#fiber = undefined
    }
    const repeated = Effect.catchDefect(step, (defect) =>
      Effect.andThen(
        Effect.logError("work in the background has failed; it is repeated", defect),
        Effect.sleep(RETRY)
      )
    )
    const fiber = fork(
      Effect.gen(function* () {
        while (more()) yield* repeated
        // Must stay synchronous with the check above: a later start() begins again.
        end()
      }).pipe(Effect.onError(() => Effect.sync(end)))
    )
    if (this.#state === "running") this.#fiber = fiber
  }

  /** Interrupts the work and waits for its end; later starts have no effect. */
  get stop(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.#state = "stopped"
      return this.#fiber === undefined ? Effect.void : Fiber.interrupt(this.#fiber)
    })
  }
}

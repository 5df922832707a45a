import { Effect, type Exit, Latch } from "effect"
import {
  beginStep,
  finishSteps,
  type InstallStepName,
  type InstallSteps,
  withProgress
} from "../../contract/domain/InstallState.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { type OpenSpan, openSpan } from "../../shared/observability/trace.ts"
import type { PullWatch } from "../runtime/Runtime.ts"

/** Called with the steps of an installation after each change; changes may be combined. */
export type OnSteps = (steps: InstallSteps) => Effect.Effect<void>

export class StepLog {
  private steps: InstallSteps
  private span: OpenSpan | undefined
  private changed = Latch.makeUnsafe(false)

  constructor(steps: InstallSteps = []) {
    this.steps = steps
  }

  get now(): InstallSteps {
    return this.steps
  }

  begin(name: InstallStepName): Effect.Effect<void> {
    return Effect.gen({ self: this }, function* () {
      yield* this.endSpan()
      this.span = yield* openSpan(`install.${name}`)
      this.set(beginStep(this.steps, name, yield* nowText))
    })
  }

  /** Finishes the current step; the result of the work, or its next step, reports that. */
  readonly finish: Effect.Effect<void> = Effect.gen({ self: this }, function* () {
    yield* this.endSpan()
    this.steps = finishSteps(this.steps, yield* nowText)
  })

  /** Ends the span of the current step. @param exit of the installation, if that has ended it */
  endSpan(exit?: Exit.Exit<unknown, unknown>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { span } = this
      this.span = undefined
      return span?.end(exit) ?? Effect.void
    })
  }

  readonly pull: PullWatch = {
    begun: Effect.suspend(() => this.begin("pull")),
    onProgress: (share) => this.set(withProgress(this.steps, Math.floor(share * 100) / 100))
  }

  /** Runs an effect, and `onSteps` beside it; a failure comes after the last step. */
  watched<A, E, R>(effect: Effect.Effect<A, E, R>, onSteps: OnSteps): Effect.Effect<A, E, R> {
    const follow = Effect.suspend(() => {
      const { changed } = this
      return Effect.andThen(onSteps(this.steps), changed.await)
    })
    return Effect.raceFirst(effect, Effect.forever(follow)).pipe(
      Effect.tapError(() => Effect.suspend(() => onSteps(this.steps)))
    )
  }

  private set(steps: InstallSteps): void {
    this.steps = steps
    const { changed } = this
    this.changed = Latch.makeUnsafe(false)
    changed.openUnsafe()
  }
}

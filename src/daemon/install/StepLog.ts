import { Effect, Latch } from "effect"
import {
  beginStep,
  finishSteps,
  type InstallStepName,
  type InstallSteps,
  withProgress
} from "../../domain/InstallStep.ts"
import { nowText } from "../../domain/nowText.ts"
import type { PullWatch } from "../runtime/Runtime.ts"

/** Called with the steps of an installation after each change; changes may be combined. */
export type OnSteps = (steps: InstallSteps) => Effect.Effect<void>

/** The steps of an installation, which all servers that wait for it follow. */
export class StepLog {
  private steps: InstallSteps
  private changed = Latch.makeUnsafe(false)

  constructor(steps: InstallSteps = []) {
    this.steps = steps
  }

  get now(): InstallSteps {
    return this.steps
  }

  /** Finishes the current step and begins another. */
  begin(name: InstallStepName): Effect.Effect<void> {
    return Effect.map(nowText, (at) => this.set(beginStep(this.steps, name, at)))
  }

  /** Finishes the current step; the result of the work, or its next step, reports that. */
  readonly finish: Effect.Effect<void> = Effect.map(nowText, (at) => {
    this.steps = finishSteps(this.steps, at)
  })

  /** The pull of an image as a step, with its progress in whole percent. */
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

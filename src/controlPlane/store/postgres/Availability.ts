import { Effect, Latch } from "effect"
import type { SqlError } from "effect/sql"
import { NOT_TRIED } from "../sql/sqlErrors.ts"
import { connectionError } from "./errors.ts"

/** Whether the last attempts reached the database. If not, statements fail at once until a new connection is made. */
export class Availability {
  #away = false
  /** Whether the database was ever reached: before, the start fails with the reason. */
  #met = false
  readonly #isAway = Latch.makeUnsafe(false)
  readonly #isBack = Latch.makeUnsafe(true)

  get isAway(): boolean {
    return this.#away
  }

  readonly away: Effect.Effect<void> = Effect.suspend(() => this.#isAway.await)
  readonly back: Effect.Effect<void> = Effect.suspend(() => this.#isBack.await)

  readonly check: Effect.Effect<void, SqlError.SqlError> = Effect.suspend(() =>
    this.#away ? Effect.fail(connectionError("the database is away", NOT_TRIED)) : Effect.void
  )

  /** Records that the database did not answer. */
  readonly lost = (why: string): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (this.#away || !this.#met) return Effect.void
      this.#away = true
      this.#isBack.closeUnsafe()
      this.#isAway.openUnsafe()
      return Effect.logError(`the database is unavailable: ${why}`)
    })

  readonly found: Effect.Effect<void> = Effect.suspend(() => {
    this.#met = true
    if (!this.#away) return Effect.void
    this.#away = false
    this.#isAway.closeUnsafe()
    this.#isBack.openUnsafe()
    return Effect.logInfo("the database is available again")
  })
}

import { Cause, Effect, FiberSet, Latch, MutableHashMap, Option, type Schedule, type Scope } from "effect"
import { makePause } from "./backoff.ts"

/** Whether the work on a key is complete, or its step runs again after the back-off. */
export type StepOutcome = "done" | "again"

export interface WorkQueueOptions<K, E, R> {
  /** Subject of the log lines, such as "installation". */
  readonly name: string
  /** The log fields of a key, such as `server_id`: every line that its step logs has them. */
  readonly fields: (key: K) => Readonly<Record<string, string>>
  /**
   * One attempt, from 1, counted anew after a wake-up. A failure counts as "again". An interrupted leader may have made
   * it: it must bear repetition.
   */
  readonly step: (key: K, attempt: number) => Effect.Effect<StepOutcome, E, R>
  /** The delays between attempts; a wake-up begins them again. A schedule that ends is a defect. */
  readonly backoff: Schedule.Schedule<unknown>
  /** Bounds the steps that run at a time, such as a {@link KeyedLock} by node. Default: no bound. */
  readonly permit?: (key: K) => <A, E1, R1>(effect: Effect.Effect<A, E1, R1>) => Effect.Effect<A, E1, R1>
  /** The work that is pending when the queue becomes active; repeated by `backoff` until it succeeds. */
  readonly resume?: Effect.Effect<Iterable<K>, E, R>
  /** Keeps the queue active while this process is the leader. Default: active until the scope closes. */
  readonly leadership?: {
    whileLeader<E1, R1>(
      work: Effect.Effect<void, E1, R1>
    ): Effect.Effect<void, never, Exclude<R1, Scope.Scope> | Scope.Scope>
  }
}

/** A queue of keys, each of which is worked on until its step is done; keys do not wait for each other. */
export interface WorkQueue<K> {
  /** Starts or wakes the work on a key. Returns false while inactive: `resume` finds the work later. */
  add(key: K): boolean
  has(key: K): boolean
  keys(): Iterable<K>
  size(): number
}

const reasonOf = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  if (typeof error !== "object" || error === null) return String(error)
  if ("detail" in error && typeof error.detail === "string") return error.detail
  return error instanceof Error && error.message !== "" ? error.message : String(error)
}

/** Makes a {@link WorkQueue}. Keys are compared by value. */
export const makeWorkQueue = Effect.fnUntraced(function* <K, E, R>({
  backoff,
  fields,
  leadership,
  name,
  permit,
  resume = Effect.succeed([]),
  step
}: WorkQueueOptions<K, E, R>): Effect.fn.Return<WorkQueue<K>, never, R | Scope.Scope> {
  /** By key: opened to wake it. */
  const entries = MutableHashMap.empty<K, Latch.Latch>()
  /** Unset while the queue is inactive. */
  let fork: ((work: Effect.Effect<void, never, R>) => void) | undefined
  const beginBackoff = makePause(backoff)

  const work = Effect.fnUntraced(function* (key: K, woken: Latch.Latch) {
    let attempt = 1
    let pause: Effect.Effect<void> | undefined
    let logged: string | undefined
    /** Logs each cause once, until another one takes its place. */
    const failed = (cause: Cause.Cause<E>): Effect.Effect<StepOutcome> => {
      const reason = reasonOf(cause)
      if (reason === logged) return Effect.succeed("again")
      logged = reason
      const log = Cause.hasDies(cause)
        ? Effect.logError(`${name} failed, retrying`, cause)
        : Effect.logDebug(`${name} is retried: ${reason}`)
      return Effect.as(log, "again")
    }
    const begun = Effect.suspend(() => {
      woken.closeUnsafe()
      return step(key, attempt)
    })
    while (true) {
      const outcome = yield* Effect.catchCause(permit === undefined ? begun : permit(key)(begun), failed)
      if (outcome === "done" && !woken.isOpen()) {
        // Must stay synchronous with the check above: a later add() starts the work again.
        MutableHashMap.remove(entries, key)
        return
      }
      let isWoken = outcome === "done"
      if (outcome === "again") {
        pause ??= yield* beginBackoff
        isWoken = yield* Effect.raceFirst(Effect.as(pause, false), Effect.as(woken.await, true))
      }
      attempt = isWoken ? 1 : attempt + 1
      if (isWoken) pause = undefined
    }
  })

  const add = (key: K) => {
    const known = Option.getOrUndefined(MutableHashMap.get(entries, key))
    if (known !== undefined) {
      known.openUnsafe()
      return true
    }
    if (fork === undefined) return false
    const woken = Latch.makeUnsafe(false)
    MutableHashMap.set(entries, key, woken)
    // The caller, such as a follower of the journal, ends its own work first.
    fork(Effect.annotateLogs(Effect.andThen(Effect.yieldNow, work(key, woken)), fields(key)))
    return true
  }

  const active = Effect.gen(function* () {
    const fibers = yield* FiberSet.make<void>()
    // Captured here: the context of a caller of add(), such as a transaction, does not apply to the step.
    const run = yield* FiberSet.runtime(fibers)<R>()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        fork = run
      }),
      () =>
        Effect.sync(() => {
          fork = undefined
          MutableHashMap.clear(entries)
        })
    )
    for (const key of yield* Effect.orDie(Effect.retry(resume, backoff))) add(key)
    return yield* Effect.never
  })
  yield* leadership === undefined
    ? Effect.forkScoped(Effect.scoped(active), { startImmediately: true })
    : leadership.whileLeader(active)

  return {
    add,
    has: (key) => MutableHashMap.has(entries, key),
    keys: () => MutableHashMap.keys(entries),
    size: () => MutableHashMap.size(entries)
  }
})

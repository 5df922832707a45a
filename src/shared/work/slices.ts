/** Long work in the thread of the event loop, in slices between which other requests are served. */
import { Effect, Semaphore } from "effect"

/** Time of all slices in one turn of the event loop, in milliseconds. */
const SLICE = 3

/** Time at which the first slice of this turn began, if it has. */
let began: number | undefined

/** Whether the slices of this turn have had their time. */
const isOver = (): boolean => {
  if (began !== undefined) return performance.now() - began >= SLICE
  began = performance.now()
  setImmediate(() => {
    began = undefined
  })
  return false
}

/** The work that waits for a turn; each piece of work has the next slice in its order. */
const turns = Semaphore.makeUnsafe(1)

const nextTurn = turns.withPermit(
  Effect.whileLoop({ while: isOver, body: () => Effect.yieldNow, step: () => {} })
)

/** Lets other work run if the slices of this turn have had their time; call it between the steps of long work. */
export const pause: Effect.Effect<void> = Effect.suspend(() => (isOver() ? nextTurn : Effect.void))

/** Runs long work that may stop at each `yield`, after which data may differ. An interruption runs its `finally`. */
export const inSlices = <A>(work: () => Iterator<void, A>): Effect.Effect<A> =>
  Effect.suspend(() => {
    const steps = work()
    const slice: Effect.Effect<A> = Effect.suspend(() => {
      let step = steps.next()
      while (step.done !== true && !isOver()) step = steps.next()
      return step.done === true ? Effect.succeed(step.value) : Effect.flatMap(nextTurn, () => slice)
    })
    return Effect.onInterrupt(slice, () => Effect.sync(() => steps.return?.()))
  })

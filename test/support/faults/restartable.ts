import type { ChildProcess } from "node:child_process"
import { readFileSync } from "node:fs"
import { Effect, Exit, Latch, Scope, Semaphore } from "effect"
import { eventually } from "../eventually.ts"
import { ended } from "../Service.ts"
import { type Fault, FaultFailed } from "./Fault.ts"

/** A process that can be killed, frozen and started again. */
export interface Restartable<A> {
  /** The running process, which may be frozen; waits while none runs. */
  readonly current: Effect.Effect<A>
  /** The last started process, running or not. */
  readonly latest: () => A
  /** SIGKILL; healed: started again and ready. */
  readonly killed: Fault
  /** SIGSTOP; healed: SIGCONT. */
  readonly frozen: Fault
}

const isAlive = (child: ChildProcess) => child.exitCode === null && child.signalCode === null

/** Whether every thread of the process is stopped (Linux). */
const standsStill = (child: ChildProcess) =>
  Effect.sync(() => {
    try {
      return /\) T /.test(readFileSync(`/proc/${child.pid}/stat`, "utf8"))
    } catch {
      return true // it has ended
    }
  })

/**
 * @param name  of the target, for the names of the faults
 * @param start starts the process; use a fixed port and data folder if others must reach it again
 */
export const restartable = Effect.fnUntraced(function* <A extends { readonly process: ChildProcess }, E, R>(
  name: string,
  start: Effect.Effect<A, E, R>
) {
  const scope = yield* Effect.scope
  const up = yield* Latch.make(false)
  const one = yield* Semaphore.make(1)
  const live = Effect.gen(function* () {
    const processScope = yield* Scope.fork(scope)
    const started = yield* Effect.onError(Scope.provide(start, processScope), () =>
      Scope.close(processScope, Exit.void)
    )
    return { processScope, started }
  })
  const context = yield* Effect.context<Exclude<R, Scope.Scope>>()
  let now = yield* live
  yield* up.open
  const process = () => now.started.process
  const failed = (cause: E) => new FaultFailed({ message: `${name} does not start again: ${cause}` })

  return {
    current: Effect.andThen(
      up.await,
      Effect.sync(() => now.started)
    ),
    latest: () => now.started,
    killed: {
      name: `${name} is killed`,
      inject: Effect.gen(function* () {
        yield* up.close
        process().kill("SIGKILL")
        yield* ended(process())
      }).pipe(one.withPermit),
      heal: Effect.gen(function* () {
        if (isAlive(process())) return
        yield* Scope.close(now.processScope, Exit.void)
        now = yield* Effect.provideContext(Effect.mapError(live, failed), context)
        yield* up.open
      }).pipe(one.withPermit)
    },
    frozen: {
      name: `${name} is frozen`,
      inject: Effect.gen(function* () {
        process().kill("SIGSTOP")
        yield* eventually(standsStill(process()), (still) => still)
      }).pipe(
        Effect.mapError(({ message }) => new FaultFailed({ message: `${name} does not freeze: ${message}` }))
      ),
      heal: Effect.sync(() => void process().kill("SIGCONT"))
    }
  } satisfies Restartable<A>
})

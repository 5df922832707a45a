import { Clock, Deferred, Effect, Exit, Latch, type Scope } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import { byTurn } from "../../contract/domain/RunRule.ts"
import type { Instance } from "./Instance.ts"
import { canStartInTurn } from "./powerDecision.ts"

export interface Turns {
  /** Called when a server waits for its turn, or can be started again. */
  readonly wake: () => void
  /** Whether the daemon ends, so that no server is started by itself. */
  readonly isClosed: () => boolean
}

export interface StartQueue extends Turns {
  /** Begins to start servers, except those that the control plane has removed or a caller has stopped. */
  readonly begin: (except: ReadonlyArray<ServerId>) => void
  readonly close: () => void
}

/** The longest wait for the control plane: without it, the daemon starts its servers by itself. */
const GRACE = "5 seconds"
/** The pauses before a start is tried again, in ms: an engine may start after the daemon. */
const RETRIES = [2, 5, 10, 20, 30, 60, 60, 60, 60].map((seconds) => seconds * 1000)
const LOOK = 100

const turnOf = ({ file }: Instance) => {
  const { id, created_at, definition } = file.get().spec
  return created_at === undefined ? { id, definition } : { id, definition, created_at }
}

/** Starts waiting servers by priority and age, some at a time. A place is free once a server is online or offline. */
export const makeStartQueue = Effect.fnUntraced(function* (
  instances: () => Iterable<Instance>,
  parallel: number
): Effect.fn.Return<StartQueue, never, Scope.Scope> {
  const begun = yield* Deferred.make<void>()
  const changed = Latch.makeUnsafe(true)
  const except = new Set<ServerId>()
  const taken = new Set<ServerId>()
  const refused = new Map<ServerId, { readonly tries: number; readonly until: number }>()
  let closed = false

  const isFree = (instance: Instance, now: number) => {
    const { id } = instance.file.get().spec
    if (except.has(id) || taken.has(id) || !canStartInTurn(instance.file.get())) return false
    return (refused.get(id)?.until ?? 0) <= now
  }

  const next = (now: number): Instance | undefined => {
    let first: Instance | undefined
    for (const instance of instances()) {
      if (!isFree(instance, now)) continue
      if (first === undefined || byTurn(turnOf(instance), turnOf(first)) < 0) first = instance
    }
    return first
  }

  const start = Effect.fnUntraced(function* (instance: Instance) {
    const { id } = instance.file.get().spec
    const tries = refused.get(id)?.tries ?? 0
    const started = yield* Effect.exit(instance.startInTurn(tries === RETRIES.length))
    if (Exit.isSuccess(started)) refused.delete(id)
    else
      refused.set(id, { tries: tries + 1, until: (yield* Clock.currentTimeMillis) + (RETRIES[tries] ?? 0) })
    yield* Effect.sync(() => instance.file.get().status === "starting").pipe(
      Effect.delay(LOOK),
      Effect.repeat({ while: (isStarting) => isStarting })
    )
  })

  const work = Effect.gen(function* () {
    const found = closed ? undefined : next(yield* Clock.currentTimeMillis)
    if (found === undefined) {
      changed.closeUnsafe()
      const pauses = refused.size > 0 ? changed.await.pipe(Effect.timeoutOption(1000)) : changed.await
      return yield* pauses
    }
    const { id } = found.file.get().spec
    taken.add(id)
    yield* Effect.ensuring(
      start(found),
      Effect.sync(() => taken.delete(id))
    )
  }).pipe(Effect.forever)

  yield* Effect.gen(function* () {
    yield* Effect.timeoutOption(Deferred.await(begun), GRACE)
    yield* Effect.all(
      Array.from({ length: parallel }, () => work),
      { concurrency: "unbounded", discard: true }
    )
  }).pipe(Effect.forkScoped)

  return {
    begin: (ids) => {
      for (const id of ids) except.add(id)
      Deferred.doneUnsafe(begun, Effect.void)
      changed.openUnsafe()
    },
    close: () => {
      closed = true
    },
    isClosed: () => closed,
    wake: () => void changed.openUnsafe()
  }
})

/** Creations on one remote node: those that wait for a message to it go together in the next. */

import { Deferred, Effect, type Result, Semaphore } from "effect"
import { RequestId } from "../../../contract/domain/ApiError.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import {
  type Creations,
  type DaemonServer,
  MOST_CREATIONS,
  type ServerSpec
} from "../../../contract/domain/NodeMessages.ts"
import type { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import type { DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { traceparent } from "../../../shared/observability/trace.ts"
import { RecentMap } from "../../../shared/work/RecentMap.ts"

/** Messages to one node at a time: a slow server holds up only its own message. */
const MESSAGES = 2
const SINGLE_CALLS = 8
/** Bound of the definitions of a message, in bytes. A larger definition has its own message. */
const MESSAGE_BYTES = 1024 * 1024
/** Bound of the servers that are sent alone: a deleted one is never sent again. */
const MOST_ALONE = 1000

interface Waiting {
  readonly spec: ServerSpec
  readonly trace: string | undefined
  readonly answered: Deferred.Deferred<DaemonServer, DaemonError>
}

export interface CreationsOptions {
  readonly single: (spec: ServerSpec) => Effect.Effect<DaemonServer, DaemonError>
  /** Creates several servers by one message. Returns the outcomes in their order. */
  readonly together: (
    creations: Creations
  ) => Effect.Effect<ReadonlyArray<Result.Result<DaemonServer, DaemonError>>, DaemonError>
  /** Runs a message, which has several callers. */
  readonly fork: (message: Effect.Effect<void>) => void
}

const addAlone = (alone: Set<ServerId>, id: ServerId): void => {
  alone.delete(id)
  alone.add(id)
  const [oldest] = alone
  if (alone.size > MOST_ALONE && oldest !== undefined) alone.delete(oldest)
}

type Restore = <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E>

const texts = new RecentMap<ServerDefinition, string>()
const textOf = (definition: ServerDefinition): string => {
  const text = texts.get(definition) ?? JSON.stringify(definition)
  texts.set(definition, text)
  return text
}

const toMessage = (waiting: ReadonlyArray<Waiting>): Creations => {
  const places = new Map<string, number>()
  const definitions: Array<ServerDefinition> = []
  const servers = waiting.map(({ spec: { definition, ...own }, trace }) => {
    const text = textOf(definition)
    const place = places.get(text) ?? definitions.push(definition) - 1
    places.set(text, place)
    return { ...own, definition: place, ...(trace === undefined ? {} : { traceparent: trace }) }
  })
  return { definitions, servers }
}

/**
 * Creates servers on one node; those that wait for a message share the next. After no response or a refusal of the
 * whole message, each is sent alone, since one may be the reason.
 */
export const makeCreations = ({ fork, single, together }: CreationsOptions) => {
  const queue: Array<Waiting> = []
  const singles = Semaphore.makeUnsafe(SINGLE_CALLS)
  /** Servers whose last call had no response, so that the next call is for one server. */
  const alone = new Set<ServerId>()
  let messages = 0

  const sendAlone = (spec: ServerSpec) =>
    singles.withPermit(single(spec)).pipe(
      Effect.tap(() => Effect.sync(() => alone.delete(spec.id))),
      Effect.tapErrorTag("DaemonRefused", () => Effect.sync(() => alone.delete(spec.id)))
    )

  const sendEach = (waiting: ReadonlyArray<Waiting>) =>
    Effect.forEach(
      waiting,
      ({ answered, spec }) =>
        Effect.flatMap(Effect.exit(sendAlone(spec)), (exit) => Deferred.done(answered, exit)),
      { concurrency: SINGLE_CALLS, discard: true }
    )

  const sendTogether = (waiting: ReadonlyArray<Waiting>): Effect.Effect<void> =>
    together(toMessage(waiting)).pipe(
      Effect.andThen((outcomes) => answer(waiting, outcomes)),
      Effect.catchTag("DaemonRefused", () => sendEach(waiting)),
      Effect.catchCause((cause) => {
        for (const { answered, spec } of waiting) {
          addAlone(alone, spec.id)
          Deferred.doneUnsafe(answered, Effect.failCause(cause))
        }
        return Effect.void
      })
    )

  const answer = (
    waiting: ReadonlyArray<Waiting>,
    outcomes: ReadonlyArray<Result.Result<DaemonServer, DaemonError>>
  ) =>
    Effect.sync(() => {
      for (const [at, { answered }] of waiting.entries()) {
        const outcome = outcomes[at]
        if (outcome !== undefined) Deferred.doneUnsafe(answered, Effect.fromResult(outcome))
      }
    })

  const take = (): ReadonlyArray<Waiting> => {
    const definitions = new Set<string>()
    let bytes = 0
    let servers = 0
    for (const { spec } of queue.slice(0, MOST_CREATIONS)) {
      const text = textOf(spec.definition)
      if (!definitions.has(text)) bytes += Buffer.byteLength(text)
      definitions.add(text)
      if (servers > 0 && bytes > MESSAGE_BYTES) break
      servers += 1
    }
    return queue.splice(0, servers)
  }

  const pump = (): void => {
    while (queue.length > 0 && messages < MESSAGES) {
      const waiting = take()
      messages += 1
      const sending = waiting.length === 1 ? sendEach(waiting) : sendTogether(waiting)
      fork(Effect.ensuring(sending, Effect.sync(sent)))
    }
  }

  const sent = (): void => {
    messages -= 1
    pump()
  }

  const wait = (spec: ServerSpec, trace: string | undefined, restore: Restore) => {
    const waiting: Waiting = { spec, trace, answered: Deferred.makeUnsafe() }
    queue.push(waiting)
    return Effect.onInterrupt(restore(Deferred.await(waiting.answered)), () =>
      Effect.sync(() => {
        const at = queue.indexOf(waiting)
        if (at >= 0) queue.splice(at, 1)
      })
    )
  }

  return (spec: ServerSpec): Effect.Effect<DaemonServer, DaemonError> =>
    // An interruption between the count and its end would hold up all later creations.
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(Effect.zip(RequestId, traceparent), ([request, trace]) => {
        if (request !== undefined || alone.has(spec.id)) return restore(sendAlone(spec))
        // Stays synchronous with the check, because the end of a message takes only those that wait already.
        if (messages >= MESSAGES) return wait(spec, trace, restore)
        messages += 1
        return Effect.ensuring(restore(sendAlone(spec)), Effect.sync(sent))
      })
    )
}

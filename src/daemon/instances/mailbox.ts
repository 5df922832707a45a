/** The messages to a server's fiber, and the replies to their callers. */
import { Deferred, Effect, Exit, Queue } from "effect"
import { DaemonRefused } from "../../api/Daemon.ts"
import type { ServerId } from "../../domain/Id.ts"
import type { PowerAction, ServerSpec } from "../../domain/NodeMessages.ts"
import { type TracePlace, tracePlace } from "../../work/trace.ts"
import type { WorkExit } from "./instanceWork.ts"
import type { RunEvent } from "./LiveRun.ts"

export type Reply = Deferred.Deferred<void, DaemonRefused>

/** The messages of a server's fiber, which handles one at a time. */
export type Message =
  | RunEvent
  | {
      readonly _tag: "Power"
      readonly action: PowerAction
      readonly wait_seconds: number
      readonly reply: Reply
    }
  | { readonly _tag: "Reset" | "Reinstall" | "ShutDown"; readonly reply: Reply }
  | { readonly _tag: "Hold"; readonly held: boolean; readonly reply: Reply }
  | { readonly _tag: "Define"; readonly spec: ServerSpec; readonly reply: Reply }
  | { readonly _tag: "RestartDue"; readonly at: number }
  | { readonly _tag: "WorkDone"; readonly exit: WorkExit }

/** A message, and the place of its caller in a trace. */
interface Placed {
  readonly message: Message
  readonly place: TracePlace
}

const internalError = new DaemonRefused({
  status: 500,
  detail: "internal error of the node",
  hint: "Read the log of the node."
})
const removed = (id: ServerId) =>
  new DaemonRefused({
    status: 404,
    detail: `server not found: ${id}`,
    hint: "Check whether the server still exists."
  })

/** Completes the reply with the outcome; a defect becomes a refusal, so that no caller waits forever. */
export const replyWith = (reply: Reply, effect: Effect.Effect<void, DaemonRefused>): Effect.Effect<void> =>
  effect.pipe(
    Effect.onExit((exit) =>
      Exit.isSuccess(exit) || exit.cause.reasons.every((reason) => reason._tag === "Fail")
        ? Deferred.done(reply, exit)
        : Deferred.fail(reply, internalError)
    ),
    Effect.catchTag("DaemonRefused", () => Effect.void)
  )

/** Opens the mailbox of a server. */
export const openMailbox = Effect.fnUntraced(function* (id: ServerId) {
  const inbox = yield* Queue.unbounded<Placed>()
  let open = true
  /** @param place of the caller; default: outside of every trace */
  const offer = (message: Message, place?: TracePlace) =>
    Effect.asVoid(Queue.offer(inbox, { message, place }))

  /** Refuses the remaining messages, so that no caller waits for a closed server. */
  const close = Effect.gen(function* () {
    open = false
    for (const { message } of yield* Queue.clear(inbox)) {
      if ("reply" in message) yield* Deferred.fail(message.reply, removed(id))
    }
  })

  /** Sends a message and waits for its reply. @error DaemonRefused also if the mailbox is closed */
  const request = Effect.fnUntraced(function* (make: (reply: Reply) => Message) {
    if (!open) return yield* removed(id)
    const reply = yield* Deferred.make<void, DaemonRefused>()
    yield* offer(make(reply), yield* tracePlace)
    return yield* Deferred.await(reply)
  })

  return {
    close,
    /** Refuses later messages. */
    end: () => {
      open = false
    },
    isOpen: () => open,
    offer,
    request,
    take: Queue.take(inbox)
  }
})

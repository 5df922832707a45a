import { Deferred, Effect, Exit, Latch } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import type { TracePlace } from "../../shared/observability/trace.ts"
import type { WorkExit } from "./instanceWork.ts"
import type { InstanceAction } from "./powerDecision.ts"
import type { RunEvent } from "./watchRun.ts"

export type Reply = Deferred.Deferred<void, DaemonRefused>

export type Message =
  | RunEvent
  | {
      readonly _tag: "Power"
      readonly action: InstanceAction
      readonly wait_seconds: number
      /** The caller, if it is known. */
      readonly by: string | undefined
      readonly reply: Reply
    }
  | { readonly _tag: "Reset" | "Reinstall" | "ShutDown"; readonly reply: Reply }
  | { readonly _tag: "Hold"; readonly held: boolean; readonly reply: Reply }
  | { readonly _tag: "Define"; readonly spec: ServerSpec; readonly reply: Reply }
  | { readonly _tag: "TurnCame"; readonly isLast: boolean; readonly reply: Reply }
  | { readonly _tag: "RestartDue"; readonly at: number }
  | { readonly _tag: "WorkDone"; readonly exit: WorkExit }

interface Placed {
  readonly message: Message
  readonly place: TracePlace
}

const internalError = new DaemonRefused({
  status: 500,
  detail: "internal error of the node",
  hint: "Read the log of the node."
})
export const removed = (id: ServerId) =>
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

export class Mailbox {
  readonly #waiting: Array<Placed> = []
  readonly #arrived = Latch.makeUnsafe(false)
  #isOpen = true

  isOpen(): boolean {
    return this.#isOpen
  }

  isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** Adds a message at the caller's place of a trace, unless the mailbox is closed; returns whether it did. */
  add(message: Message, place?: TracePlace): boolean {
    if (!this.#isOpen) return false
    this.#waiting.push({ message, place })
    this.#arrived.openUnsafe()
    return true
  }

  get take(): Effect.Effect<Placed> {
    return Effect.suspend(() => {
      const next = this.#waiting.shift()
      if (next !== undefined) return Effect.succeed(next)
      this.#arrived.closeUnsafe()
      return Effect.andThen(this.#arrived.await, this.take)
    })
  }

  end(): void {
    this.#isOpen = false
  }

  /** Refuses later messages and those that remain, so that no caller waits for a closed server. */
  close(id: ServerId): void {
    this.#isOpen = false
    for (const { message } of this.#waiting.splice(0)) {
      if ("reply" in message) Deferred.doneUnsafe(message.reply, Exit.fail(removed(id)))
    }
  }
}

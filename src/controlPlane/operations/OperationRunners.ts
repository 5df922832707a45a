import { Context, Data, Effect, Layer, Schema } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { OperationKind, OperationProgress, OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { NodeUnreachable } from "../../contract/nodeApi/Daemon.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"

/** The task of an operation cannot be done, and nothing of it stays. */
export class OperationFailed extends Data.TaggedError("OperationFailed")<{ readonly reason: string }> {}

/** The longest time between two looks at a task on its node, in ms. */
export const LOOK_INTERVAL = 500

/** Waits for the next look at a task on its node: most tasks take a moment, and long ones need few looks. */
export const untilLook = (looks: number): Effect.Effect<void> =>
  Effect.sleep(Math.min(LOOK_INTERVAL, 25 * 2 ** looks))

/** Turns a refusal of the node into the end of the operation. */
export const asked = <A, R = never>(
  call: Effect.Effect<A, FileError, R>
): Effect.Effect<A, OperationFailed | NodeUnreachable, R> =>
  Effect.mapError(call, (error) =>
    error._tag === "NodeUnreachable" ? error : new OperationFailed({ reason: error.detail })
  )

/** Returns a function that reads the task of an operation from its request. */
export const makeReadTask = <A>(task: Schema.Decoder<A>) => {
  const decode = Schema.decodeUnknownEffect(task)
  return ({ request }: OperationRecord) =>
    Effect.mapError(
      decode(request),
      () => new OperationFailed({ reason: "its request cannot be read by this version" })
    )
}

/** {@link OperationFailed} ends the operation; after another error, the leader repeats the call. */
export type RunnerError = OperationFailed | NodeUnreachable | Unavailable

/** Does the work of one kind of operations, on the leader (spec 11.4). */
export interface OperationRunner {
  /**
   * Does the task and follows it to its end. It is interrupted when the operation is cancelled or the leader changes, and
   * called again with the same id by the next leader, so the node must know the id. A text says what it has left out.
   */
  run(
    operation: OperationRecord,
    server: ServerRecord,
    report: (progress: OperationProgress) => Effect.Effect<void>
  ): Effect.Effect<unknown, RunnerError>
  /**
   * Ends the task on the node and removes what is unfinished; a node that does not know the id has nothing to do. If the
   * task is done nevertheless, it returns what the task has left out, or null.
   */
  cancel(
    operation: OperationRecord,
    server: ServerRecord
  ): Effect.Effect<string | null | undefined, RunnerError>
  /** Records elsewhere why a begun operation fails or is cancelled, before it ends; it may be called again. */
  readonly ending?: (
    operation: OperationRecord,
    reason: string
  ) => Effect.Effect<void, OperationFailed | Unavailable>
}

/** The runners by kind. They are registered before the leader begins. */
export class OperationRunners extends Context.Service<
  OperationRunners,
  {
    register(kind: OperationKind, runner: OperationRunner): void
    /** Returns nothing for a kind that only a newer version knows. */
    of(kind: string): OperationRunner | undefined
  }
>()("muster/operations/OperationRunners") {
  static readonly layer = Layer.sync(OperationRunners, () => {
    const runners = new Map<string, OperationRunner>()
    return OperationRunners.of({
      register: (kind, runner) => void runners.set(kind, runner),
      of: (kind) => runners.get(kind)
    })
  })
}

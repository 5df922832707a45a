import { Effect, Latch, Layer } from "effect"
import type { NodeId } from "../../../src/contract/domain/Id.ts"
import {
  OperationKind,
  type OperationProgress,
  type OperationRecord
} from "../../../src/contract/domain/Operation.ts"
import type { ServerRecord } from "../../../src/contract/domain/Server.ts"
import { NodeUnreachable } from "../../../src/contract/nodeApi/Daemon.ts"
import {
  OperationFailed,
  type OperationRunner,
  OperationRunners,
  type RunnerError
} from "../../../src/controlPlane/operations/OperationRunners.ts"

type End = "done" | "failed" | "defect"

interface Task {
  readonly changed: Latch.Latch
  begun: number
  /** The nodes that were called for it. */
  readonly nodes: Array<string>
  end?: End
  progress: OperationProgress
}

/** Tasks on a node that outlives its control planes. A task ends when the test says so. */
export class FakeTasks {
  readonly tasks = new Map<string, Task>()
  readonly cancelled: Array<string> = []
  /** Calls that follow a task now. */
  following = 0
  /** While away, calls fail. */
  isAway = false
  /** The node that failed calls name; default: the node of the server. */
  away: NodeId | undefined

  #unlessAway(server: ServerRecord) {
    return Effect.suspend(() =>
      this.isAway ? Effect.fail(new NodeUnreachable({ node_id: this.away ?? server.node_id })) : Effect.void
    )
  }

  #follow = Effect.fnUntraced(
    { self: this },
    function* (
      this: FakeTasks,
      { id }: OperationRecord,
      server: ServerRecord,
      report: (progress: OperationProgress) => Effect.Effect<void>
    ): Effect.fn.Return<void, RunnerError> {
      yield* this.#unlessAway(server)
      const task = this.tasks.get(id) ?? {
        changed: Latch.makeUnsafe(false),
        begun: 0,
        nodes: [],
        progress: { done: 0, total: 4, unit: "files" as const }
      }
      if (!this.tasks.has(id)) task.begun += 1
      this.tasks.set(id, task)
      task.nodes.push(server.node_id)
      while (true) {
        task.changed.closeUnsafe()
        yield* this.#unlessAway(server)
        const { end, progress } = task
        yield* report(progress)
        if (end === "done") return
        if (end === "failed") return yield* new OperationFailed({ reason: "no room\non the disk" })
        if (end === "defect") return yield* Effect.die(new Error("a mistake of the runner"))
        yield* task.changed.await
      }
    }
  )

  readonly #runner: OperationRunner = {
    run: (operation, server, report) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          this.following += 1
        }),
        () => this.#follow(operation, server, report),
        () =>
          Effect.sync(() => {
            this.following -= 1
          })
      ),
    cancel: ({ id }, server) =>
      Effect.andThen(
        this.#unlessAway(server),
        Effect.sync(() => void this.cancelled.push(id))
      )
  }

  readonly layer = Layer.effectDiscard(
    Effect.map(OperationRunners, ({ register }) => {
      for (const kind of OperationKind.literals) register(kind, this.#runner)
    })
  )

  change(id: string, change: { readonly end?: End; readonly done?: number }): void {
    const task = this.tasks.get(id)
    if (task === undefined) throw new Error(`no task: ${id}`)
    if (change.done !== undefined) task.progress = { ...task.progress, done: change.done }
    if (change.end !== undefined) task.end = change.end
    task.changed.openUnsafe()
  }

  /** The node comes back, or is away. */
  setAway(isAway: boolean): void {
    this.isAway = isAway
    for (const { changed } of this.tasks.values()) changed.openUnsafe()
  }
}

import { Effect, Layer } from "effect"
import { FileTask } from "../../contract/domain/FileTask.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import {
  asked,
  LOOK_INTERVAL,
  makeReadTask,
  OperationFailed,
  type OperationRunner,
  OperationRunners
} from "./OperationRunners.ts"

const readTask = makeReadTask(FileTask)

/** Registers the runners of tasks on files of servers: their nodes do the work (spec 11.4). */
export const FileTaskRunners = Layer.effectDiscard(
  Effect.gen(function* () {
    const daemons = yield* DaemonClient
    const { register } = yield* OperationRunners

    const callOf = Effect.fnUntraced(function* (operation: OperationRecord, { node_id }: ServerRecord) {
      const { files } = yield* daemons.of(node_id)
      return { files, request: { operation_id: operation.id, task: yield* readTask(operation) } }
    })

    const runner: OperationRunner = {
      run: Effect.fnUntraced(function* (operation, server, report) {
        const { files, request } = yield* callOf(operation, server)
        const begin = asked(files.begin(server.id, request))
        let now = yield* begin
        while (true) {
          yield* report(now.progress)
          switch (now.state) {
            case "done":
              return
            case "failed":
              return yield* new OperationFailed({ reason: now.reason ?? "the node gives no reason" })
            case "cancelled":
              return yield* new OperationFailed({ reason: "the node has cancelled it" })
            case "interrupted":
              now = yield* begin
              break
            case "running":
              yield* Effect.sleep(LOOK_INTERVAL)
              now = yield* asked(files.progress(server.id, operation.id))
          }
        }
      }),
      cancel: Effect.fnUntraced(function* (operation, server) {
        const { files, request } = yield* callOf(operation, server)
        yield* asked(files.cancel(server.id, request))
        const state = yield* asked(files.progress(server.id, operation.id)).pipe(
          Effect.map((now) => now.state),
          Effect.catchTag("OperationFailed", () => Effect.succeed("cancelled" as const))
        )
        return state === "done" ? state : undefined
      })
    }
    register("files.change", runner)
    register("files.unpack", runner)
    register("files.pack", runner)
  })
)

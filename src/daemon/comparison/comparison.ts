/**
 * A thread that compares the files of a server with the entries of a backup (spec 12.5). Imports `access`, `disk` and `packed`.
 * Read first: this file (how the thread gets the entries), `compareWorker.ts` (what it does).
 */
import { Worker } from "node:worker_threads"
import { Deferred, Effect, Queue } from "effect"
import type { RestoreComparison } from "../../contract/domain/Backup.ts"
import type { CompareRequest } from "../../contract/nodeApi/NodeBackups.ts"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import type { AccessError } from "../access/refused.ts"
import { IoError } from "../disk/fsio.ts"
import type { Walk } from "../packed/walk.ts"

/** The data of the thread. */
export interface CompareJob extends Omit<Walk, "exclude">, CompareRequest {
  /** Set to 1 once the thread is to end. */
  readonly ended: SharedArrayBuffer
}

/** The counts of the thread. */
export type Compared = Omit<RestoreComparison, "free_bytes">

/** The messages of the thread, one for each that it gets. */
export type CompareMessage =
  | { readonly to: "next" }
  | { readonly to: "end"; readonly compared: Compared }
  | { readonly to: "end"; readonly io: Pick<IoError, "code" | "message"> }
  | { readonly to: "end"; readonly refused: Pick<FileRefused, "detail" | "hint" | "status"> }

/** Bytes of the entries, or their end; `stop` ends the thread. */
export type CompareInput = { readonly bytes: Uint8Array } | "done" | "stop"

const workerFile = new URL(
  import.meta.url.endsWith(".ts") ? "./compareWorker.ts" : "./compareWorker.js",
  import.meta.url
)

/** Starts the thread, and returns a function that gives it a message and waits for its answer. */
export const startComparison = Effect.fnUntraced(function* (workerData: CompareJob) {
  const answers = yield* Queue.unbounded<CompareMessage>()
  const { worker } = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const worker = new Worker(workerFile, { env: {}, workerData })
      const exited = Deferred.makeUnsafe<void>()
      const fail = (message: string) =>
        Queue.offerUnsafe(answers, { to: "end", io: { code: "THREAD", message } })
      worker.on("error", (cause) => fail(`cannot compare the files: ${String(cause)}`))
      worker.on("exit", () => {
        fail("the thread that compares the files has ended")
        Deferred.doneUnsafe(exited, Effect.void)
      })
      worker.on("message", (message: CompareMessage) => Queue.offerUnsafe(answers, message))
      return { worker, exited }
    }),
    ({ exited, worker }) =>
      Effect.suspend(() => {
        Atomics.store(new Int32Array(workerData.ended), 0, 1)
        worker.postMessage("stop" satisfies CompareInput)
        return Deferred.await(exited)
      })
  )
  return (input: CompareInput): Effect.Effect<Compared | undefined, AccessError> =>
    Effect.gen(function* () {
      worker.postMessage(input)
      const answer = yield* Queue.take(answers)
      if (answer.to === "next") return undefined
      if ("io" in answer) return yield* new IoError(answer.io)
      return "refused" in answer ? yield* new FileRefused(answer.refused) : answer.compared
    })
})

/**
 * A thread that compares the files of a server with the entries of a backup (spec 12.5). Imports `access`, `disk` and `packed`.
 * Read first: this file (how the thread gets the entries), `compareWorker.ts` (what it does).
 */
import { Cause, Effect, Queue } from "effect"
import type { RestoreComparison } from "../../contract/domain/Backup.ts"
import type { CompareRequest } from "../../contract/nodeApi/NodeBackups.ts"
import type { AccessError } from "../access/refused.ts"
import { type IoError, toIoError } from "../disk/fsio.ts"
import { receivedFailure, startThread, type ThreadFailure } from "../packed/threads.ts"
import type { Walk } from "../packed/walk.ts"

export interface CompareJob extends Omit<Walk, "exclude">, CompareRequest {
  /** Set to 1 once the thread is to end. */
  readonly ended: SharedArrayBuffer
}

export type Compared = Omit<RestoreComparison, "free_bytes">

/** The messages of the thread, one for each that it gets. */
export type CompareMessage =
  | { readonly to: "next" }
  | { readonly to: "end"; readonly compared: Compared }
  | ThreadFailure

/** Bytes of the entries, or their end; `stop` ends the thread. */
export type CompareInput = { readonly bytes: Uint8Array } | "done" | "stop"

const workerFile = new URL(
  import.meta.url.endsWith(".ts") ? "./compareWorker.ts" : "./compareWorker.js",
  import.meta.url
)

/** Starts the thread, and returns a function that gives it a message and waits for its answer. */
export const startComparison = Effect.fnUntraced(function* (workerData: CompareJob) {
  const answers = yield* Queue.unbounded<CompareMessage, IoError>()
  const { worker } = yield* startThread({
    file: workerFile,
    workerData,
    onMessage: (message: CompareMessage) => Queue.offerUnsafe(answers, message),
    onEnd: (cause) =>
      Queue.failCauseUnsafe(answers, Cause.fail(toIoError("compare the files of the server", cause))),
    end: (thread) => {
      Atomics.store(new Int32Array(workerData.ended), 0, 1)
      thread.postMessage("stop" satisfies CompareInput)
    }
  })
  return (input: CompareInput): Effect.Effect<Compared | undefined, AccessError> =>
    Effect.gen(function* () {
      worker.postMessage(input)
      const answer = yield* Queue.take(answers)
      if (answer.to === "next") return undefined
      return "compared" in answer ? answer.compared : yield* Effect.fail(receivedFailure(answer))
    })
})

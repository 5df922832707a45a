/** Threads that read files for backups, and how their failures get to the main thread. */
import { Worker } from "node:worker_threads"
import { Deferred, Effect } from "effect"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { IoError } from "../disk/fsio.ts"

/** A failure, as a thread sends it: classes do not survive the copy. */
export type ThreadFailure =
  | { readonly to: "end"; readonly io: Pick<IoError, "code" | "message"> }
  | { readonly to: "end"; readonly refused: Pick<FileRefused, "detail" | "hint" | "status"> }

export const sentFailure = (error: FileRefused | IoError): ThreadFailure =>
  error._tag === "IoError"
    ? { to: "end", io: { code: error.code, message: error.message } }
    : { to: "end", refused: { status: error.status, detail: error.detail, hint: error.hint } }

export const receivedFailure = (failure: ThreadFailure): FileRefused | IoError =>
  "io" in failure ? new IoError(failure.io) : new FileRefused(failure.refused)

interface ThreadOptions<Message> {
  readonly file: URL
  readonly workerData: unknown
  readonly onMessage: (message: Message) => void
  /** The thread failed or ended. */
  readonly onEnd: (cause: unknown) => void
  /** Has the thread end itself; the scope waits for it. */
  readonly end: (worker: Worker) => void
}

/** Starts a thread that lasts as long as the scope. */
export const startThread = <Message>({ end, file, onEnd, onMessage, workerData }: ThreadOptions<Message>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      // Else the garbage of a thread takes 70 MiB more, and as much CPU time.
      const resourceLimits = { maxYoungGenerationSizeMb: 8 }
      const worker = new Worker(file, { env: {}, resourceLimits, workerData })
      const exited = Deferred.makeUnsafe<void>()
      worker.on("error", onEnd)
      worker.on("exit", () => {
        onEnd("its thread has ended")
        Deferred.doneUnsafe(exited, Effect.void)
      })
      worker.on("message", onMessage)
      return { worker, exited }
    }),
    ({ exited, worker }) =>
      Effect.andThen(
        Effect.sync(() => end(worker)),
        Deferred.await(exited)
      )
  )

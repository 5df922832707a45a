/** Patches of large files, outside the thread that serves requests. */
import { Worker } from "node:worker_threads"
import { Effect } from "effect"
import type { ConfigParser } from "../../domain/ConfigPatch.ts"
import { type Find, type PatchedText, PatchProblem } from "./PatchProblem.ts"

export interface PatchJob {
  readonly parser: ConfigParser
  readonly text: string | undefined
  readonly find: Find
}

export type PatchOutcome = PatchedText | { readonly problem: string }

/** Longer texts get a thread of their own, in characters: a megabyte of YAML takes a second or more. */
const INLINE_LENGTH = 64 * 1024
const DEADLINE = "30 seconds"
const MAX_MEMORY_MB = 512

const workerFile = new URL(
  import.meta.url.endsWith(".ts") ? "./patchWorker.ts" : "./patchWorker.cjs",
  import.meta.url
)

const inThread = (job: PatchJob): Effect.Effect<PatchedText, PatchProblem> =>
  Effect.callback<PatchedText, PatchProblem>((resume) => {
    const fail = (reason: string) => resume(new PatchProblem({ reason }))
    const worker = new Worker(workerFile, {
      workerData: job,
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MB }
    })
    worker.once("message", (outcome: PatchOutcome) =>
      "problem" in outcome ? fail(outcome.problem) : resume(Effect.succeed(outcome))
    )
    worker.once("error", (error: Error & { readonly code?: string }) =>
      fail(
        error.code === "ERR_WORKER_OUT_OF_MEMORY"
          ? `it takes more than ${MAX_MEMORY_MB} MiB of memory to read`
          : `it cannot be read: ${error.message}`
      )
    )
    worker.once("exit", () => fail("it cannot be read: its thread ended early"))
    return Effect.promise(() => worker.terminate())
  }).pipe(
    Effect.timeoutOrElse({
      duration: DEADLINE,
      orElse: () => new PatchProblem({ reason: `it takes longer than ${DEADLINE} to read` })
    })
  )

/** Loads the parsers at the first patch: they would slow the start of the service. */
const inThisThread = ({ find, parser, text }: PatchJob) =>
  Effect.promise(() => import("./patchText.ts")).pipe(
    Effect.flatMap(({ patchText }) => Effect.fromResult(patchText(parser, text, find)))
  )

/** Runs `patchText`; in a thread with a deadline if the text is long. */
export const patchAside = (job: PatchJob): Effect.Effect<PatchedText, PatchProblem> =>
  (job.text?.length ?? 0) <= INLINE_LENGTH ? inThisThread(job) : inThread(job)

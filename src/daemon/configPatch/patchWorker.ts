/** The thread behind `patchAside`. */
import { parentPort, workerData } from "node:worker_threads"
import { Result } from "effect"
import type { PatchJob, PatchOutcome } from "./patchAside.ts"
import { patchText } from "./patchText.ts"

// workerData is untyped; `patchAside` alone starts this file, with a PatchJob
const job: PatchJob = workerData
const outcome: PatchOutcome = Result.match(patchText(job.parser, job.text, job.find), {
  onSuccess: (patched): PatchOutcome => patched,
  onFailure: ({ reason }) => ({ problem: reason })
})
parentPort?.postMessage(outcome)

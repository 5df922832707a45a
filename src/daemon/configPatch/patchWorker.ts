import { parentPort } from "node:worker_threads"
import { Result } from "effect"
import type { PatchJob, PatchOutcome } from "./patchAside.ts"
import { patchText } from "./patchText.ts"

// messages are untyped; `patchAside` alone sends them
parentPort?.on("message", ({ find, parser, text }: PatchJob) => {
  const outcome: PatchOutcome = Result.match(patchText(parser, text, find), {
    onSuccess: (patched): PatchOutcome => patched,
    onFailure: ({ reason }) => ({ problem: reason })
  })
  parentPort?.postMessage(outcome)
})
parentPort?.postMessage("ready")

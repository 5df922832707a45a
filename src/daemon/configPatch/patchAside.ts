/** Patches of files that servers may have written, outside the thread that serves requests. */
import { Worker } from "node:worker_threads"
import { type Duration, Effect, Semaphore } from "effect"
import type { ConfigParser } from "../../contract/domain/ConfigPatch.ts"
import { countValues } from "../../contract/domain/Overrides.ts"
import { type Find, type PatchedText, PatchProblem } from "./find.ts"

export interface PatchJob {
  readonly parser: ConfigParser
  readonly text: string | undefined
  readonly find: Find
}

export type PatchOutcome = PatchedText | { readonly problem: string }

/** The most characters that are patched without a thread: 1 ms for 50 in trees, 10 ms for 16,384 in lines. */
const INLINE_LENGTH: Readonly<Record<ConfigParser, number>> = {
  yaml: 1024,
  xml: 1024,
  toml: 512,
  json: 8192,
  properties: 16_384,
  ini: 16_384,
  file: 16_384
}
/** Patches of more values run in a thread: each line may be compared with each of them. */
const INLINE_VALUES = 100
/** Longer texts get a thread of their own: a megabyte of YAML takes a second or more. */
const KEPT_LENGTH = 65_536
const MAX_MEMORY_MB = 512

const workerFile = new URL(
  import.meta.url.endsWith(".ts") ? "./patchWorker.ts" : "./patchWorker.js",
  import.meta.url
)

const startWorker = (): Worker => {
  const worker = new Worker(workerFile, {
    env: {},
    resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MB }
  })
  // an idle thread does not keep the process
  worker.unref()
  // an error without a listener, as while it is terminated, would end this process
  worker.on("error", () => undefined)
  return worker
}

/** Returns the next message of a thread; fails if the thread ends before. */
const next = <A>(worker: Worker): Effect.Effect<A, PatchProblem> =>
  Effect.callback<A, PatchProblem>((resume) => {
    const fail = (reason: string) => end(new PatchProblem({ reason }))
    const listeners = {
      message: (message: A) => end(Effect.succeed(message)),
      error: (error: Error & { readonly code?: string }) =>
        fail(
          error.code === "ERR_WORKER_OUT_OF_MEMORY"
            ? `it takes more than ${MAX_MEMORY_MB} MiB of memory to read`
            : `it cannot be read: ${error.message}`
        ),
      exit: () => fail("it cannot be read: its thread ended early")
    }
    const forget = () => {
      for (const [event, listener] of Object.entries(listeners)) worker.off(event, listener)
    }
    const end = (outcome: Effect.Effect<A, PatchProblem>) => {
      forget()
      resume(outcome)
    }
    for (const [event, listener] of Object.entries(listeners)) worker.on(event, listener)
    return Effect.sync(forget)
  })

/** Runs a job in a thread that loads or has loaded the parsers; the deadline is for the job alone. */
const runIn = Effect.fnUntraced(function* (
  worker: Worker,
  fresh: boolean,
  job: PatchJob,
  deadline: Duration.Input & string
) {
  if (fresh) yield* next<"ready">(worker)
  worker.postMessage(job)
  return yield* next<PatchOutcome>(worker).pipe(
    Effect.timeoutOrElse({
      duration: deadline,
      orElse: () => new PatchProblem({ reason: `it takes longer than ${deadline} to read` })
    })
  )
})

const resultOf = (outcome: PatchOutcome): Effect.Effect<PatchedText, PatchProblem> =>
  "problem" in outcome ? new PatchProblem({ reason: outcome.problem }) : Effect.succeed(outcome)

let kept: Worker | undefined
const turnOfKept = Semaphore.makeUnsafe(1)
/** Each of these threads may take the memory of `MAX_MEMORY_MB`. */
const turnOfLarge = Semaphore.makeUnsafe(2)

/** A thread that fails, takes too long, or is interrupted is terminated. */
const inKeptThread = (job: PatchJob): Effect.Effect<PatchOutcome, PatchProblem> =>
  Effect.suspend(() => {
    const fresh = kept === undefined
    const worker = kept ?? startWorker()
    kept = worker
    return runIn(worker, fresh, job, "2 seconds").pipe(
      Effect.onError(() => {
        kept = undefined
        return Effect.promise(() => worker.terminate())
      })
    )
  }).pipe(turnOfKept.withPermit)

const inOwnThread = (job: PatchJob): Effect.Effect<PatchOutcome, PatchProblem> =>
  Effect.acquireUseRelease(
    Effect.sync(startWorker),
    (worker) => runIn(worker, true, job, "30 seconds"),
    (worker) => Effect.promise(() => worker.terminate())
  ).pipe(turnOfLarge.withPermit)

/** Loads the parsers at the first patch: they would slow the start of the service. */
const inThisThread = ({ find, parser, text }: PatchJob) =>
  Effect.promise(() => import("./patchText.ts")).pipe(
    Effect.flatMap(({ patchText }) => Effect.fromResult(patchText(parser, text, find)))
  )

export const isShort = ({ find, parser, text = "" }: PatchJob): boolean =>
  text.length <= INLINE_LENGTH[parser] && (countValues(find) ?? Number.POSITIVE_INFINITY) <= INLINE_VALUES

/** Runs `patchText`; in a thread with a deadline unless the job is short. */
export const patchAside = (job: PatchJob): Effect.Effect<PatchedText, PatchProblem> => {
  if (isShort(job)) return inThisThread(job)
  const length = job.text?.length ?? 0
  return Effect.flatMap(length <= KEPT_LENGTH ? inKeptThread(job) : inOwnThread(job), resultOf)
}

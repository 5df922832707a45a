/** Patches of files that servers may have written, outside the thread that serves requests. */
import { Worker } from "node:worker_threads"
import { type Duration, Effect, Pool, Scope } from "effect"
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
const MAX_MEMORY_MB = 512
/** Longer texts have threads of their own, and more time: a megabyte of YAML takes a second or more. */
const SHORT_LENGTH = 65_536

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

/**
 * Threads with the parsers, of which each may take the memory of `MAX_MEMORY_MB`. Idle ones end after a while. The pool is
 * made at the first use: its timer would keep a command such as `muster --help` from ending.
 */
const threads = (max: number, deadline: Duration.Input & string) => {
  const pool = Pool.makeWithTTL({
    acquire: Effect.acquireRelease(Effect.sync(startWorker), (worker) =>
      Effect.promise(() => worker.terminate())
    ).pipe(Effect.tap((worker) => next<"ready">(worker))),
    min: 0,
    max,
    timeToLive: "1 minute"
  })
  return { deadline, made: Effect.runSync(Effect.cached(Scope.provide(pool, Scope.makeUnsafe()))) }
}
const forShort = threads(1, "2 seconds")
const forLong = threads(2, "30 seconds")

/** A thread that fails, takes too long, or is interrupted serves no other job. */
const inThread = Effect.fnUntraced(function* (job: PatchJob) {
  const { deadline, made } = (job.text?.length ?? 0) <= SHORT_LENGTH ? forShort : forLong
  const pool = yield* made
  const worker = yield* Pool.get(pool)
  worker.postMessage(job)
  const outcome = yield* next<PatchOutcome>(worker).pipe(
    Effect.timeoutOrElse({
      duration: deadline,
      orElse: () => new PatchProblem({ reason: `it takes longer than ${deadline} to read` })
    }),
    Effect.onError(() => Pool.invalidate(pool, worker))
  )
  return "problem" in outcome ? yield* new PatchProblem({ reason: outcome.problem }) : outcome
}, Effect.scoped)

/** Loads the parsers at the first patch: they would slow the start of the service. */
const inThisThread = ({ find, parser, text }: PatchJob) =>
  Effect.promise(() => import("./patchText.ts")).pipe(
    Effect.flatMap(({ patchText }) => Effect.fromResult(patchText(parser, text, find)))
  )

/** Whether a job takes no time. An alias of YAML stands for any number of values. */
export const isShort = ({ find, parser, text = "" }: PatchJob): boolean =>
  text.length <= INLINE_LENGTH[parser] &&
  !(parser === "yaml" && text.includes("*")) &&
  (countValues(find) ?? Number.POSITIVE_INFINITY) <= INLINE_VALUES

/** Runs `patchText`; in a thread with a deadline unless the job is short. */
export const patchAside = (job: PatchJob): Effect.Effect<PatchedText, PatchProblem> =>
  isShort(job) ? inThisThread(job) : inThread(job)

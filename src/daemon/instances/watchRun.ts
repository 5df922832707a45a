import { watch } from "node:fs"
import { Clock, Effect, Exit, Latch, Option, Scope } from "effect"
import type { ConsoleLog, LineListener } from "../console/ConsoleLog.ts"
import type { Line } from "../console/lines.ts"
import { type OnlineMatcher, SILENCE } from "../console/onlineSignal.ts"
import { orWarn } from "../disk/fsio.ts"
import type { ProcessExit } from "../runtime/exitReason.ts"
import type { Run } from "../runtime/Runtime.ts"

/** The interval between two reads of the console without a change event, in ms. */
const POLL_INTERVAL = 1000
/** The pause after each chunk, in ms, so that a busy server does not starve others. */
const CHUNK_PAUSE = 20
/** The time for a server to stop after the byte of ^C before it gets SIGINT, in ms. */
export const INTERRUPT_TIMEOUT = 5000
/** The longest delay of a timer, in ms. */
const MAX_DELAY = 2_000_000_000

type Late = "StartLate" | "InterruptLate" | "StopLate"

export type RunEvent =
  | { readonly _tag: "Online"; readonly token: string }
  /** The process of a run with a `beginning` has started. `at`: ms since the epoch. */
  | { readonly _tag: "Began"; readonly token: string; readonly at: number }
  | { readonly _tag: "Ended"; readonly token: string; readonly exit: ProcessExit }
  | { readonly _tag: Late; readonly token: string }

/** Returns the milliseconds until a time, at most the original duration, because the clock may have been set since. */
export const remainingMillis = (until: number, seconds: number) =>
  Effect.map(Clock.currentTimeMillis, (now) => Math.min(Math.max(0, until - now), seconds * 1000))

export interface WatchedRun {
  readonly token: string
  readonly run: Run
  after(millis: number, event: Late): Effect.Effect<void>
  /** Emits the event at a time, in ms since the epoch, see {@link remainingMillis}. */
  at(until: number, seconds: number, event: Late): Effect.Effect<void>
  inBackground(effect: Effect.Effect<void>): Effect.Effect<void>
  /** Whether lines of output were delivered; only while the online signal is awaited. */
  readonly hasPrinted: () => boolean
  /** Stops watching and delivers the rest of the console; returns whether the online signal was seen. */
  readonly close: Effect.Effect<boolean>
}

export interface WatchOptions {
  readonly token: string
  readonly run: Run
  readonly folder: string
  readonly console: ConsoleLog
  /** The offset in the console at which reading starts. */
  readonly offset: number
  /** Set while the online signal is awaited. */
  readonly matcher: OnlineMatcher | undefined
  readonly offer: (event: RunEvent) => Effect.Effect<void>
}

/** Opens a latch at every change of the console in the folder. One inotify instance serves all servers. */
const watchFolder = (folder: string, changed: Latch.Latch) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const watcher = watch(folder, { persistent: false }, (_, name) => {
          if (name === null || name === "console.log") changed.openUnsafe()
        })
        watcher.on("error", () => watcher.close()) // the folder was removed; the interval remains
        return watcher
      },
      catch: (cause) => String(cause)
    }).pipe(
      // For example too many watches: the console is then read once per second.
      Effect.catch((reason) => Effect.as(Effect.logDebug(`cannot watch ${folder}: ${reason}`), undefined))
    ),
    (watcher) => Effect.sync(() => watcher?.close())
  )

/** Whether an ended run was online. If the beginning of its output is lost, it counts as online. */
export const findOnlineSignal = Effect.fnUntraced(function* (
  console: ConsoleLog,
  offset: number,
  matcher: OnlineMatcher | undefined
) {
  if (matcher === undefined) return false
  let seen = false
  const onLines = (lines: ReadonlyArray<Line>) =>
    Effect.sync(() => {
      seen ||= matcher(lines) === true
    })
  const onLost = Effect.sync(() => {
    seen = true
  })
  yield* console.seek(offset).pipe(
    Effect.tap((lost) => (lost ? onLost : Effect.void)),
    Effect.andThen(console.finish({ wanted: () => !seen, onLines, onLost })),
    orWarn
  )
  return seen
})

export const watchRun = Effect.fnUntraced(function* (options: WatchOptions, parent: Scope.Scope) {
  const { console, folder, offer, run, token } = options
  const scope = yield* Scope.fork(parent)
  let matcher = options.matcher
  let seen = false
  let printed = false

  const online = Effect.suspend(() => {
    matcher = undefined
    seen = true
    return offer({ _tag: "Online", token })
  })
  const onLines = Effect.fnUntraced(function* (lines: ReadonlyArray<Line>) {
    if (run.beginning?.isOver() === false) return // the progress of a pull
    printed = true
    const matched = matcher?.(lines)
    if (matched === "too-slow") {
      matcher = undefined
      yield* Effect.logError("the online-signal exceeded its time limit and is no longer matched")
    } else if (matched === true) yield* online
  })
  const onLost = Effect.suspend(() =>
    matcher === undefined
      ? Effect.void
      : Effect.andThen(
          Effect.logWarning("output was lost during the start: the server counts as online"),
          online
        )
  )
  const listener: LineListener = { wanted: () => matcher !== undefined, onLines, onLost }

  const changed = yield* Latch.make(true)
  const follow = Effect.gen(function* () {
    const change = yield* Effect.timeoutOption(changed.await, console.hasOpenLine() ? SILENCE : POLL_INTERVAL)
    yield* changed.close
    let isSilent = Option.isNone(change)
    yield* Effect.suspend(() => console.step(listener, isSilent)).pipe(
      Effect.tap(() => {
        isSilent = false
        return Effect.sleep(CHUNK_PAUSE)
      }),
      Effect.repeat({ while: (more) => more })
    )
  }).pipe(
    Effect.catch((error) => Effect.andThen(Effect.logWarning(error.message), Effect.sleep(POLL_INTERVAL))),
    Effect.forever
  )

  const lost = yield* console
    .seek(options.offset)
    .pipe(Effect.catch((error) => Effect.as(Effect.logWarning(error.message), false)))
  if (lost) yield* onLost
  yield* Scope.provide(watchFolder(folder, changed), scope)
  yield* Effect.forkIn(follow, scope)
  if (run.beginning !== undefined) {
    yield* run.beginning.at.pipe(
      Effect.flatMap((at) => offer({ _tag: "Began", token, at })),
      Effect.forkIn(scope)
    )
  }
  yield* run.ended.pipe(
    Effect.flatMap((exit) => offer({ _tag: "Ended", token, exit })),
    Effect.forkIn(scope)
  )

  const after = (millis: number, event: Late) =>
    Effect.sleep(Math.min(millis, MAX_DELAY)).pipe(
      Effect.andThen(offer({ _tag: event, token })),
      Effect.forkIn(scope),
      Effect.asVoid
    )

  const live: WatchedRun = {
    token,
    run,
    hasPrinted: () => printed,
    after,
    at: (until, seconds, event) =>
      Effect.flatMap(remainingMillis(until, seconds), (millis) => after(millis, event)),
    inBackground: (effect) => Effect.asVoid(Effect.forkIn(effect, scope)),
    close: Scope.close(scope, Exit.void).pipe(
      Effect.andThen(console.finish(listener)),
      orWarn,
      Effect.map(() => seen)
    )
  }
  return live
})

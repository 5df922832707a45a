import { watch } from "node:fs"
import { Effect, Exit, Latch, Scope } from "effect"
import type { ConsoleLog, LineListener } from "../console/ConsoleLog.ts"
import type { OnlineMatcher } from "../console/onlineSignal.ts"
import type { ProcessExit } from "../runtime/exitReason.ts"
import type { Run } from "../runtime/Runtime.ts"

/** Console files are looked at this often even when no event says so, in ms. */
const FALLBACK = 1000
/** Pause after each piece that was read, in ms: a flood must not starve the others. */
const BREATH = 20
/** Longest sleep that timers take, in ms. */
const LONGEST = 2_000_000_000

/** What happens to a run by itself. */
export type RunEvent =
  | { readonly _tag: "Online"; readonly token: string }
  /** Of a run that was not there at once. `at`: ms since the epoch. */
  | { readonly _tag: "Began"; readonly token: string; readonly at: number }
  | { readonly _tag: "Ended"; readonly token: string; readonly exit: ProcessExit }
  | { readonly _tag: "StartLate"; readonly token: string }
  | { readonly _tag: "StopLate"; readonly token: string }

/** A run with the fibers that watch it. */
export interface LiveRun {
  readonly token: string
  readonly run: Run
  /** Tells once so many milliseconds have passed. */
  after(millis: number, event: RunEvent): Effect.Effect<void>
  /** Does something beside all else, for as long as the run is watched. */
  meanwhile(effect: Effect.Effect<void>): Effect.Effect<void>
  /** Stops watching, hands out what is left of the console; answers whether the online signal was in it. */
  readonly close: Effect.Effect<boolean>
}

export interface LiveRunOptions {
  readonly server_id: string
  readonly token: string
  readonly run: Run
  readonly folder: string
  readonly console: ConsoleLog
  /** Where reading begins. */
  readonly offset: number
  /** Absent: no online signal is waited for. */
  readonly matcher: OnlineMatcher | undefined
  readonly offer: (event: RunEvent) => Effect.Effect<void>
}

/** Opens a latch at every change of a file in the folder. One inotify instance serves all servers. */
const watchFolder = (folder: string, changed: Latch.Latch) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const watcher = watch(folder, { persistent: false }, (_, name) => {
          if (name === null || name === "console.log") changed.openUnsafe()
        })
        watcher.on("error", () => watcher.close()) // the folder has gone; the fallback goes on
        return watcher
      },
      catch: (cause) => String(cause)
    }).pipe(
      // Too many watches, for one: the console is then looked at once a second.
      Effect.catch((reason) => Effect.as(Effect.logDebug(`cannot watch ${folder}: ${reason}`), undefined))
    ),
    (watcher) => Effect.sync(() => watcher?.close())
  )

/**
 * Whether the online signal is in what a run that is over has printed. Where what it began with is gone, unseen, it
 * counts as seen: a server that has printed so much is not one that does not come up.
 */
export const watchOnlineSignal = Effect.fnUntraced(function* (
  console: ConsoleLog,
  offset: number,
  matcher: OnlineMatcher | undefined
) {
  if (matcher === undefined) return false
  let seen = false
  const onLines = (lines: ReadonlyArray<string>) =>
    Effect.sync(() => {
      seen ||= matcher(lines) === true
    })
  yield* console.seek(offset).pipe(
    Effect.tap((gone) =>
      Effect.sync(() => {
        seen = gone
      })
    ),
    Effect.andThen(console.finish({ wanted: () => !seen, onLines })),
    Effect.catch((error) => Effect.logWarning(error.message))
  )
  return seen
})

/** Watches a run in the scope that `parent` owns. */
export const openLiveRun = Effect.fnUntraced(function* (options: LiveRunOptions, parent: Scope.Scope) {
  const { console, folder, offer, run, server_id, token } = options
  const scope = yield* Scope.fork(parent)
  let matcher = options.matcher
  let seen = false

  const online = Effect.suspend(() => {
    matcher = undefined
    seen = true
    return offer({ _tag: "Online", token })
  })
  const onLines = Effect.fnUntraced(function* (lines: ReadonlyArray<string>) {
    if (run.beginning?.isOver() === false) return // the progress of a download
    const matched = matcher?.(lines)
    if (matched === "too-slow") {
      matcher = undefined
      yield* Effect.logError(
        `online-signal of ${server_id} takes too long to match; it is not looked for any more`
      )
    } else if (matched === true) yield* online
  })
  const listener: LineListener = { wanted: () => matcher !== undefined, onLines }

  const changed = yield* Latch.make(true)
  const follow = Effect.gen(function* () {
    yield* Effect.timeoutOption(changed.await, FALLBACK)
    yield* changed.close
    yield* console.step(listener).pipe(
      Effect.tap(() => Effect.sleep(BREATH)),
      Effect.repeat({ while: (more) => more })
    )
  }).pipe(
    Effect.catch((error) => Effect.andThen(Effect.logWarning(error.message), Effect.sleep(FALLBACK))),
    Effect.forever
  )

  const gone = yield* console
    .seek(options.offset)
    .pipe(Effect.catch((error) => Effect.as(Effect.logWarning(error.message), false)))
  if (gone && matcher !== undefined) {
    yield* Effect.logWarning(`server ${server_id} has printed much while nobody looked: it counts as online`)
    yield* online
  }
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

  const live: LiveRun = {
    token,
    run,
    after: (millis, event) =>
      Effect.sleep(Math.min(millis, LONGEST)).pipe(
        Effect.andThen(offer(event)),
        Effect.forkIn(scope),
        Effect.asVoid
      ),
    meanwhile: (effect) => Effect.asVoid(Effect.forkIn(effect, scope)),
    close: Scope.close(scope, Exit.void).pipe(
      Effect.andThen(console.finish(listener)),
      Effect.catch((error) => Effect.logWarning(error.message)),
      Effect.map(() => seen)
    )
  }
  return live
})

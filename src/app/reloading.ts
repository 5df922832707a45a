import { closeSync, openSync } from "node:fs"
import { stat } from "node:fs/promises"
import { Duration, Effect, Queue } from "effect"
import type { StartError } from "../shared/config/StartError.ts"
import type { Reloadable } from "../shared/work/Reloadable.ts"

const LOOK = Duration.seconds(2)

export interface LiveFiles<A> extends Reloadable<A> {
  readonly names: string
  /**
   * Reads the files now; returns whether the value changed.
   * @error StartError unusable files: the earlier value stays
   */
  readonly reload: Effect.Effect<boolean, StartError>
}

/** Identifies the content of a file without reading it; follows links, as certbot and Kubernetes swap them. */
const stampOf = (path: string) =>
  Effect.tryPromise(() => stat(path)).pipe(
    Effect.map(({ ctimeMs, ino, mtimeMs, size }) => `${ino} ${size} ${mtimeMs} ${ctimeMs}`),
    Effect.orElseSucceed(() => "missing")
  )

/**
 * Reads a value now and when the files at `paths` change. Unusable files are reported once.
 * @error StartError the first read fails
 */
export const liveFiles = Effect.fnUntraced(function* <A>(options: {
  readonly names: string
  readonly paths: ReadonlyArray<string>
  readonly read: Effect.Effect<A, StartError>
}) {
  const { names, paths, read } = options
  const stamps = Effect.map(Effect.forEach(paths, stampOf), (all) => all.join())
  const listeners: Array<(value: A) => void> = []
  let handled = yield* stamps
  let seen = handled
  let value = yield* read

  const reload = Effect.gen(function* () {
    handled = yield* stamps
    const next = yield* read
    if (JSON.stringify(next) === JSON.stringify(value)) return false
    value = next
    for (const apply of listeners) {
      // The other listeners get the value, and the files are still observed.
      yield* Effect.sync(() => apply(next)).pipe(
        Effect.catchCause((cause) => Effect.logWarning(`${names}: a new value could not be applied`, cause))
      )
    }
    return true
  })
  // Acts on files that are the same in two looks: a certificate is written before its key.
  const look = Effect.gen(function* () {
    const before = seen
    seen = yield* stamps
    if (seen === handled || seen !== before) return
    if (yield* reload) yield* Effect.logInfo(`${names}: reloaded, because the files have changed`)
  }).pipe(
    Effect.catch(({ message }) =>
      Effect.logWarning(`${message}. The earlier content of ${names} stays in use`)
    )
  )
  yield* look.pipe(Effect.delay(LOOK), Effect.forever, Effect.forkScoped)

  return {
    names,
    current: () => value,
    onChange: (apply) => listeners.push(apply),
    reload
  } satisfies LiveFiles<A>
})

/** Whether the terminal of this process is gone: SIGHUP then means the end, not a reload. */
const hasLostTerminal = (): boolean => {
  try {
    closeSync(openSync("/dev/tty", "r"))
    return false
  } catch {
    return true
  }
}

/** The SIGHUPs until the scope closes; several at once are one. A closed terminal ends the process gracefully. */
export const hangups = Effect.gen(function* () {
  const queue = yield* Queue.sliding<void>(1)
  const interactive = process.stdin.isTTY === true && process.stdout.isTTY === true
  const onHangup = () => {
    if (interactive && hasLostTerminal()) process.kill(process.pid, "SIGTERM")
    else Queue.offerUnsafe(queue, undefined)
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", onHangup)),
    () => Effect.sync(() => process.off("SIGHUP", onHangup))
  )
  return queue
})

export interface Part {
  readonly name: string
  readonly reload: Effect.Effect<boolean, { readonly message: string; readonly detail?: string }>
}

/** Returns the certificates as parts that SIGHUP reloads. */
export const certificates = (
  ...files: ReadonlyArray<Pick<LiveFiles<unknown>, "names" | "reload"> | undefined>
) =>
  files.flatMap(
    (file): ReadonlyArray<Part> => (file === undefined ? [] : [{ name: file.names, reload: file.reload }])
  )

/** Reloads the parts in order at each SIGHUP, and logs the result in one line. */
export const reloadOnHangup = (queue: Queue.Dequeue<void>, parts: ReadonlyArray<Part>) =>
  Effect.gen(function* () {
    yield* Queue.take(queue)
    let failed = false
    const results = yield* Effect.forEach(parts, ({ name, reload }) =>
      reload.pipe(
        Effect.map((changed) => `${name} ${changed ? "reloaded" : "unchanged"}`),
        Effect.catch(({ detail, message }) => {
          failed = true
          return Effect.succeed(`${name} not reloaded (${(detail ?? message).split("\n").join("; ")})`)
        })
      )
    )
    const line = `SIGHUP: ${results.join(", ") || "nothing to reload"}`
    yield* failed ? Effect.logWarning(line) : Effect.logInfo(line)
  }).pipe(Effect.forever, Effect.forkScoped)

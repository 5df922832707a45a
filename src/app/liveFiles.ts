import { stat } from "node:fs/promises"
import { Duration, Effect } from "effect"
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

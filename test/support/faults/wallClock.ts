import { globSync, renameSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { temporaryFolder } from "../temporaryFolder.ts"
import type { Fault } from "./Fault.ts"

/** Debian's package `faketime`, which intercepts the time functions of the C library. */
const [library] = globSync("/usr/lib{64,}/{*/,}faketime/libfaketimeMT.so.1")

/** Tests run if the library is installed; in CI it is required. */
export const withWallClock = library !== undefined || process.env.CI !== undefined
/** Appended to the titles of tests that require the library. */
export const wallClockNote = library === undefined ? " (needs libfaketime: apt-get install faketime)" : ""

export interface WallClock {
  /** Variables for the processes that use this clock. */
  readonly env: Record<string, string>
  /** Sets the clock that many milliseconds ahead of the machine's, or behind it; healed: the same as the machine's. */
  readonly jumped: (millis: number) => Fault
}

/**
 * A wall clock that can be set while processes use it. Monotonic time (timers, `performance.now()`, kernel timeouts) is
 * not affected, as on a machine whose clock is set.
 */
export const wallClock: Effect.Effect<WallClock, never, Scope.Scope> = Effect.gen(function* () {
  const file = join(yield* temporaryFolder, "offset")
  const set = (millis: number) =>
    Effect.sync(() => {
      // Replaced atomically, because the processes read it all the time.
      writeFileSync(`${file}.new`, `${millis < 0 ? "-" : "+"}${Math.abs(millis) / 1000}\n`)
      renameSync(`${file}.new`, file)
    })
  yield* set(0)
  return {
    env: {
      LD_PRELOAD: library ?? "",
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_NO_CACHE: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
      NO_FAKE_STAT: "1"
    },
    jumped: (millis) => ({
      name: `the wall clock is ${Math.abs(millis) / 60_000} minutes ${millis < 0 ? "behind" : "ahead"}`,
      inject: set(millis),
      heal: set(0)
    })
  }
})

import { appendFileSync, readFileSync, renameSync, statSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeConsoleLog } from "../../../src/daemon/console/ConsoleLog.ts"
import { readCutRecord } from "../../../src/daemon/console/consoleFiles.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const listener = { wanted: () => false, onLines: () => Effect.void }
const begin = Date.UTC(2026, 0, 2, 3, 4, 5)
const timeOf = (second: number) => new Date(begin + second * 1000).toISOString()

/** A console and the program that writes it, at times in seconds after {@link begin}. */
const opened = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const file = join(folder, "console.log")
  const written = (text: string, second: number) => {
    appendFileSync(file, text)
    utimesSync(file, begin / 1000 + second, begin / 1000 + second)
  }
  let console = makeConsoleLog(folder)
  yield* console.seek(yield* console.begin)
  const follow = Effect.suspend(() => console.step(listener)).pipe(Effect.repeat({ while: (more) => more }))
  return {
    file,
    folder,
    written,
    follow,
    /** Writes output that is followed at once. */
    prints: (text: string, second: number) =>
      Effect.andThen(
        Effect.sync(() => written(text, second)),
        follow
      ),
    /** The service restarts. */
    reopened: Effect.gen(function* () {
      console = makeConsoleLog(folder)
    }),
    timed: (page: number, per_page: number) =>
      Effect.map(console.page({ page, per_page, times: true }), ({ items, times = [] }) =>
        items.map((line, at) => `${times[at]} ${line.slice(-20)}`)
      )
  }
}).pipe(Effect.tap(({ prints }) => prints("one\n", 0)))

describe("the times of a console", () => {
  it.live("a line has the time of its output, also after a restart of the service", () =>
    Effect.gen(function* () {
      const { prints, reopened, timed } = yield* opened
      yield* prints("two\nthr", 60)
      yield* prints("ee\nfour\n", 120)
      const all = [`${timeOf(0)} one`, `${timeOf(60)} two`, `${timeOf(60)} three`, `${timeOf(120)} four`]
      assert.deepStrictEqual(yield* timed(1, 9), all)
      assert.deepStrictEqual(yield* timed(2, 1), all.slice(2, 3))
      yield* reopened
      assert.deepStrictEqual(yield* timed(1, 9), all)
    }).pipe(Effect.scoped)
  )

  it.live("a rotation by the relay, and one by this service, keep times", () =>
    Effect.gen(function* () {
      const { file, folder, prints, reopened, timed } = yield* opened
      yield* prints("two\n", 60)
      renameSync(file, `${file}.1`)
      yield* prints("three\n", 120)
      const all = [`${timeOf(0)} one`, `${timeOf(60)} two`, `${timeOf(120)} three`]
      assert.deepStrictEqual(yield* timed(1, 9), all)
      yield* prints("x\n".repeat(6 * 1024 * 1024), 180)
      assert.strictEqual(statSync(file).size, 0, "this service rotated the console")
      yield* prints("four\n", 240)
      const last = [`${timeOf(180)} x`, `${timeOf(180)} x`, `${timeOf(240)} four`]
      assert.deepStrictEqual(yield* timed(1, 3), last)
      const { lostBytes = 0 } = (yield* readCutRecord(folder)) ?? {}
      writeFileSync(join(folder, "console.cut"), `gone ${lostBytes + statSync(`${file}.1`).size}\n`)
      renameSync(file, `${file}.1`)
      yield* reopened
      yield* prints("five\n", 243)
      assert.deepStrictEqual((yield* timed(1, 2))[1], `${timeOf(243)} five`)
    }).pipe(Effect.scoped)
  )

  it.live("output that this service did not follow has no time", () =>
    Effect.gen(function* () {
      const { follow, prints, reopened, timed, written } = yield* opened
      const later = 3600
      yield* reopened
      written("two\nthree\n", later)
      written("four\n", later + 60)
      yield* follow
      yield* prints("five\n", later + 120)
      const expected = ["null two", "null three", "null four", `${timeOf(later + 120)} five`]
      assert.deepStrictEqual(yield* timed(1, 4), expected)
    }).pipe(Effect.scoped)
  )

  it.live("an interrupted write, or a console that another program emptied, costs no other times", () =>
    Effect.gen(function* () {
      const { file, folder, prints, timed, written } = yield* opened
      appendFileSync(join(folder, "console.times"), "\n99 12")
      yield* prints("two\n", 60)
      assert.deepStrictEqual(yield* timed(1, 9), [`${timeOf(0)} one`, `${timeOf(60)} two`])
      writeFileSync(file, "")
      yield* prints("", 90)
      written("new\n", 120)
      assert.deepStrictEqual(yield* timed(1, 9), [`${timeOf(120)} new`])
    }).pipe(Effect.scoped)
  )

  it.live("the file is bounded: the oldest times are dropped", () =>
    Effect.gen(function* () {
      const { folder, prints, timed } = yield* opened
      const file = join(folder, "console.times")
      const { length } = "one\n"
      const old = Array.from({ length: 60_000 }, (_, line) => `\n${length + line} ${begin}`).join("")
      yield* prints("x".repeat(70_000), 60)
      appendFileSync(file, old)
      yield* prints("\nlast\n", 120)
      assert.isBelow(statSync(file).size, 1024 * 1024)
      assert.notInclude(readFileSync(file, "utf8"), `\n${length} `)
      assert.strictEqual((yield* timed(1, 1))[0], `${timeOf(120)} last`)
      assert.strictEqual((yield* timed(1, 99))[0], "null one")
    }).pipe(Effect.scoped)
  )
})

import { assert, describe, it } from "@effect/vitest"
import { Cause, Console, Effect } from "effect"
import * as fc from "fast-check"
import { LoggingLayer } from "../../src/app/logging.ts"

const hostile = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u
const forged = "x\r\n[12:00:00.000] INFO (#1): forged\u001b[2J\u202e\u2028\u0085\u{e0041}"

/** Returns the output of a program with a log format. */
const printed = (logFormat: "json" | "pretty", program: Effect.Effect<unknown>): string => {
  const lines: Array<string> = []
  const console: Console.Console = { ...globalThis.console, log: (text: string) => void lines.push(text) }
  Effect.runSync(
    program.pipe(
      Effect.provide(LoggingLayer({ logFormat, logLevel: "debug" })),
      Effect.provideService(Console.Console, console)
    )
  )
  return lines.join("\n")
}

const everywhere = (text: string) =>
  Effect.logError(text, { [text]: text }, new Error(text), Cause.die(new Error(text))).pipe(
    Effect.annotateLogs({ [`name${text}`]: text, other: { deep: text } }),
    Effect.withLogSpan(text)
  )

describe("logging: text from outside cannot forge a line", () => {
  it("with format `pretty` an entry is one line with the date, its fields and its causes", () => {
    const first = printed("pretty", everywhere(forged))
    assert.notMatch(first, hostile)
    assert.match(first, /^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] ERROR \(#\d+\) /)
    assert.include(
      first,
      "x\\r\\n[12:00:00.000] INFO (#1): forged\\u001b[2J\\u202e\\u2028\\u0085\\udb40\\udc41"
    )
    assert.include(first, " other={")
    assert.match(first, / \| at .*logging\.test\.ts/, "the stack is readable")
  })

  it("with format `json` an entry is one line of flat JSON with the original text", () => {
    const output = printed("json", everywhere(forged))
    assert.notMatch(output, hostile)
    const entry = JSON.parse(output)
    assert.strictEqual(entry.message, forged)
    assert.strictEqual(entry[`name${forged}`], forged)
    assert.lengthOf(entry.details, 2)
    assert.include(entry.cause, "Error")
    const own = printed("json", Effect.annotateLogs(Effect.logInfo("x"), { level: "y", server_id: "s" }))
    assert.deepInclude(JSON.parse(own), { message: "x", level: "INFO", level_: "y", server_id: "s" })
  })

  it("no text breaks either format", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "binary" }),
        fc.constantFrom("json" as const, "pretty" as const),
        (text, format) => {
          const line = printed(format, everywhere(text))
          assert.notMatch(line, hostile)
          assert.notInclude(line, "\n")
        }
      ),
      { numRuns: 10 }
    )
  })
})

describe("logging: output", () => {
  const writing = (program: Effect.Effect<unknown>) =>
    Effect.gen(function* () {
      const writes: Array<string> = []
      const console: Console.Console = {
        ...globalThis.console,
        log: (text: string) => void writes.push(text)
      }
      yield* program.pipe(
        Effect.andThen(Effect.sync(() => writes.push("end"))),
        Effect.provide(LoggingLayer({ logFormat: "json", logLevel: "info" })),
        Effect.provideService(Console.Console, console)
      )
      return writes
    })

  it.effect("lines that are logged without a pause share a write, in their order", () =>
    Effect.gen(function* () {
      const [first = "", ...others] = yield* writing(
        Effect.andThen(Effect.all([Effect.logInfo("one"), Effect.logInfo("two")]), Effect.promise(nextTurn))
      )
      const messages = first.split("\n").map((line) => JSON.parse(line).message)
      assert.deepStrictEqual(messages, ["one", "two"])
      assert.deepStrictEqual(others, ["end"])
    })
  )

  it.effect("the last lines are written at the end", () =>
    Effect.gen(function* () {
      const [end, last = ""] = yield* writing(Effect.logInfo("last"))
      assert.strictEqual(end, "end")
      assert.strictEqual(JSON.parse(last).message, "last")
    })
  )
})

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))

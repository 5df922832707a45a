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
  it("with format `pretty` an entry is one line; its annotations and causes are indented", () => {
    const output = printed("pretty", everywhere(forged))
    const [first = "", ...rest] = output.split("\n")
    assert.match(first, /^\[\d\d:\d\d:\d\d\.\d{3}\] ERROR \(#\d+\) /)
    assert.include(
      first,
      "x\\r\\n[12:00:00.000] INFO (#1): forged\\u001b[2J\\u202e\\u2028\\u0085\\udb40\\udc41"
    )
    for (const line of rest) {
      assert.match(line, /^ {2}/)
      assert.notMatch(line, hostile)
    }
    assert.include(first, " other={")
    assert.match(output, /\n {2,}at .*logging\.test\.ts/, "the stack is readable")
  })

  it("with format `json` an entry is one line of JSON with the original text", () => {
    const output = printed("json", everywhere(forged))
    assert.notMatch(output, hostile)
    const entry = JSON.parse(output)
    assert.strictEqual(entry.message[0], forged)
    assert.strictEqual(entry.annotations[`name${forged}`], forged)
  })

  it("no text breaks either format", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "binary" }),
        fc.constantFrom("json" as const, "pretty" as const),
        (text, format) => {
          const lines = printed(format, everywhere(text)).split("\n")
          for (const line of lines) assert.notMatch(line, hostile)
          for (const line of lines.slice(1)) assert.match(line, /^ {2}/)
        }
      ),
      { numRuns: 10 }
    )
  })
})

import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { splitWords } from "../../../src/contract/domain/commandLine.ts"

const words = (text: string) => {
  const split = splitWords(text)
  return "words" in split ? split.words : split.invalid
}

describe("blueprints, invocation", () => {
  it("the invocation is split as a shell splits words, with nothing expanded", () => {
    assert.deepStrictEqual(words(`java -jar  server.jar`), ["java", "-jar", "server.jar"])
    assert.deepStrictEqual(words(`a "b c" 'd "e' f\\ g h"i"j ''`), ["a", "b c", `d "e`, "f g", "hij", ""])
    assert.deepStrictEqual(words(String.raw`"a\"b" "c\d" '\e'`), [`a"b`, String.raw`c\d`, String.raw`\e`])
    assert.deepStrictEqual(words("echo $HOME `id` ; rm * > x"), [
      "echo",
      "$HOME",
      "`id`",
      ";",
      "rm",
      "*",
      ">",
      "x"
    ])
  })

  it("placeholders stay whole", () => {
    assert.deepStrictEqual(words("x {{ env.A }} -p{{server.build.default.port}}y '{{a b}}'"), [
      "x",
      "{{ env.A }}",
      "-p{{server.build.default.port}}y",
      "{{a b}}"
    ])
  })

  it("an error names the cause", () => {
    assert.strictEqual(words("a 'b"), "a ' is not closed")
    assert.strictEqual(words("a\\"), "a backslash ends it")
    assert.strictEqual(words("a {{b"), "{{ has no }}")
    assert.strictEqual(words("  "), "it is empty")
  })

  it("splitting quoted words returns the same words", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.string().filter((word) => !word.includes("{{")),
          { minLength: 1 }
        ),
        (list) => {
          const quoted = list.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ")
          assert.deepStrictEqual(words(quoted), list)
        }
      )
    )
  })
})

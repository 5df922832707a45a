import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { linesLost, patched, plainKey, refusal, unmatched, value } from "./support.ts"

/** A reader of the format of `java.util.Properties.load`. */
const load = (text: string): Map<string, string> => {
  const all = new Map<string, string>()
  const natural = text.split(/\r\n|\n|\r/)
  for (let at = 0; at < natural.length; at++) {
    let line = (natural[at] ?? "").replace(/^[ \t\f]+/, "")
    if (line === "" || line.startsWith("#") || line.startsWith("!")) continue
    while (/(?:^|[^\\])(?:\\\\)*\\$/.test(line)) {
      at++
      line = line.slice(0, -1) + (natural[at] ?? "").replace(/^[ \t\f]+/, "")
    }
    const match = /^((?:\\[\s\S]|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|)([\s\S]*)$/.exec(line)
    const plain = (raw: string) =>
      raw.replace(/\\(?:u([0-9a-fA-F]{4})|([\s\S]))/g, (_, hex, char) =>
        hex
          ? String.fromCharCode(Number.parseInt(hex, 16))
          : ({ t: "\t", n: "\n", r: "\r", f: "\f" }[char as string] ?? char)
      )
    all.set(plain(match?.[1] ?? ""), plain(match?.[2] ?? ""))
  }
  return all
}

describe("Config parsers: properties", () => {
  it("values are replaced; comments, order and separators are kept", () => {
    assert.strictEqual(
      patched("properties", "#head\n\n! old\nmotd = Hi\nport:25565\n  level\tworld\n", {
        motd: "Hello",
        port: 25566,
        level: "nether"
      }),
      "#head\n\n! old\nmotd = Hello\nport:25566\n  level\tnether\n"
    )
  })

  it("keys are flat: nested and dotted keys are joined", () => {
    assert.strictEqual(patched("properties", "a.b=1\n", { a: { b: 2 }, "c.d": true }), "a.b=2\nc.d=true\n")
  })

  it("a value over several lines is replaced as a whole; a key over several lines is found", () => {
    assert.strictEqual(
      patched("properties", "a=1\\\n   2\\\n   3\nb\\\n c = 4\n", { a: "x", bc: 5 }),
      "a=x\nb\\\n c = 5\n"
    )
  })

  it("a continuation mark on the last line does not absorb additions", () => {
    assert.strictEqual(load(patched("properties", "a=b\\", { c: "d" })).get("c"), "d")
  })

  it("CRLF, a missing final line end and a byte order mark are kept", () => {
    assert.strictEqual(patched("properties", "\ufeffa=1\r\nb=2", { a: 3, c: 4 }), "\ufeffa=3\r\nb=2\r\nc=4")
  })

  it("the output reads the same as Latin-1 and as UTF-8", () => {
    assert.strictEqual(patched("properties", undefined, { motd: "§a é" }), "motd=\\u00A7a \\u00E9\n")
  })

  it("every occurrence of a key is set; a value that is already right keeps its spelling", () => {
    assert.strictEqual(patched("properties", "a=\\u0078\na : y\n", { a: "x" }), "a=\\u0078\na : x\n")
  })

  it("`*` matches every key; in a dotted key it matches one segment", () => {
    assert.strictEqual(patched("properties", "a.x=1\nb.x=2\nc=3\n", { "*.x": 9 }), "a.x=9\nb.x=9\nc=3\n")
    assert.strictEqual(patched("properties", "a.x=1\nc=3\n", { "*": 9 }), "a.x=9\nc=9\n")
  })

  it("a key without a match is returned with the reason", () => {
    const find = { "*.x": 1, "*": 2, "listeners[0].host": 3 }
    assert.deepStrictEqual(unmatched("properties", "a=1\n", find), [
      { key: "*.x", reason: "no key of the file fits" }
    ])
  })

  it("an indented key and one without a name keep their position", () => {
    assert.strictEqual(patched("properties", "  =x\n \ta=1\n", { a: 2 }), "  =x\n \ta=2\n")
  })

  it("lists and empty keys are refused", () => {
    assert.match(refusal("properties", "", { a: [1] }), /"a" has a list/)
    assert.match(refusal("properties", "", { "": 1 }), /empty/)
  })

  const line = fc.oneof(
    fc.constantFrom(
      "",
      "# comment",
      "! comment \\",
      "   # indented",
      "broken \\u12 key",
      "a=1",
      "b : 2",
      "c 3\\\n  4",
      "d"
    ),
    fc
      .tuple(plainKey, fc.constantFrom("=", " = ", ":", " "), fc.stringMatching(/^[a-z\\ =:#é]{0,10}$/))
      .map((parts) => parts.join(""))
  )

  it("for any file and values, the values are set and the rest is unchanged", () => {
    fc.assert(
      fc.property(
        fc.array(line, { maxLength: 12 }),
        fc.constantFrom("\n", "\r\n"),
        fc.boolean(),
        fc.dictionary(
          fc.oneof(
            plainKey,
            fc.constantFrom("a", "b", "c", "d"),
            value.filter((key) => key !== "" && !key.includes("*"))
          ),
          value,
          { maxKeys: 5 }
        ),
        (lines, end, final, find) => {
          const text = lines.join(end).replaceAll(/\r?\n/g, end) + (final ? end : "")
          const result = patched("properties", text, find)
          const before = load(text)
          const expected = new Map([...before, ...Object.entries(find)])
          assert.deepStrictEqual(new Map([...load(result)].sort()), new Map([...expected].sort()))
          if (text.includes("\\")) return
          const lost = lines.filter((one) =>
            [...load(one)].some(([key, old]) => Object.hasOwn(find, key) && find[key] !== old)
          ).length
          // An addition ends a last line that had no end.
          assert.isAtMost(linesLost(text, result), lost + (!final && end === "\r\n" ? 1 : 0))
        }
      ),
      { numRuns: 500 }
    )
  })
})

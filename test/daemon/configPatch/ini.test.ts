import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { linesLost, patched, plainKey, refusal, unmatched, value } from "./support.ts"

/** A plain reader of section, key and value of every line: no dots, no duplicates. */
const load = (text: string): Map<string, string> => {
  const all = new Map<string, string>()
  let section = ""
  for (const line of text.split(/\r\n|\n|\r/)) {
    const name = /^\[(.*)\]\s*(?:[;#].*)?$/s.exec(line)?.[1]
    if (name !== undefined) section = name
    else if (/^\s*[^;#\s]/.test(line)) {
      const [, key = "", rest = ""] = /^([^=:]*)[=:]?\s*(.*)$/s.exec(line) ?? []
      const inQuotes = /^(["'])(.*?)\1\s*(?:[;#].*)?$/s.exec(rest)
      const bare = rest.startsWith(";") ? "" : rest.replace(/\s[;#].*$/s, "").trim()
      all.set(`${section}/${key.trim()}`, inQuotes?.[2] ?? bare)
    }
  }
  return all
}

describe("Config parsers: ini", () => {
  it("values are replaced; comments, order, separators and quotes are kept", () => {
    assert.strictEqual(
      patched("ini", '; head\n# too\n[a]\nx = 1 ; one\ny="two" # 2\nz: 3\n\n[b]\nx=4\n', {
        a: { x: 10, y: "t w o" },
        "a.z": 30
      }),
      '; head\n# too\n[a]\nx = 10 ; one\ny="t w o" # 2\nz: 30\n\n[b]\nx=4\n'
    )
  })

  it("new keys follow the last key of their section; new sections are appended", () => {
    assert.strictEqual(
      patched("ini", "g = 0\n\n[a]\nx = 1\n\n; about b\n[b]\n", { h: 1, "a.y": 2, "b.z": 3, "c.d": 4 }),
      "g = 0\nh = 1\n\n[a]\nx = 1\ny = 2\n\n; about b\n[b]\nz = 3\n\n[c]\nd = 4\n"
    )
  })

  it("an existing key or section with dots has precedence over splitting", () => {
    assert.strictEqual(
      patched("ini", "a.b=1\n[/Script/Engine.Session]\nMax=2\n[c.d]\ne=3\n", {
        "a.b": 10,
        "/Script/Engine.Session.Max": 20,
        "c.d.e": 30,
        "c.d.f": 40,
        "n.o.p": 50
      }),
      "a.b=10\n[/Script/Engine.Session]\nMax=20\n[c.d]\ne=30\nf=40\n\n[n]\no.p=50\n"
    )
  })

  it("nested keys name their section exactly", () => {
    assert.strictEqual(patched("ini", undefined, { "x.y": { "z.k": 1 } }), "[x.y]\nz.k=1\n")
  })

  it("a section in brackets is exact, as in files for Pterodactyl", () => {
    const file = "[/Script/Game.Settings]\nMax=1\n"
    assert.strictEqual(
      patched("ini", file, { "[/Script/Game.Settings].Max": 2, "[/Script/Game.Other].New.Key": 3 }),
      "[/Script/Game.Settings]\nMax=2\n\n[/Script/Game.Other]\nNew.Key=3\n"
    )
  })

  it("a key without a match is returned with the reason", () => {
    assert.deepStrictEqual(unmatched("ini", "k=0\n", { "*.x": 1, "none.*": 2, k: 3 }), [
      { key: "*.x", reason: "`*` stands for no section or key of the file" },
      { key: "none.*", reason: "`*` stands for no section or key of the file" }
    ])
  })

  it("`*` matches every section or key", () => {
    assert.strictEqual(
      patched("ini", "k=0\n[a]\nk=1\n[b]\nj=2\n", { "*.k": 9, "b.*": 8 }),
      "k=0\n[a]\nk=9\n[b]\nj=8\nk=8\n"
    )
  })

  it("a value that would read as a comment is quoted; existing quotes are kept", () => {
    assert.strictEqual(
      patched("ini", "[a]\nx=1\ny=2\nz=3\n", { a: { x: "a ; b", y: '"q"', z: " s " } }),
      '[a]\nx="a ; b"\ny="q"\nz=" s "\n'
    )
  })

  it("CRLF, a missing final line end and a byte order mark are kept", () => {
    assert.strictEqual(patched("ini", "\ufeff[a]\r\nx=1", { "a.x": 2, "a.y": 3 }), "\ufeff[a]\r\nx=2\r\ny=3")
  })

  it("a value that a line cannot hold is refused", () => {
    assert.match(refusal("ini", "[a]\nx=1\n", { "a.x": "1\n[b]" }), /cannot be written/)
    assert.match(refusal("ini", "", { a: { x: " \"'" } }), /cannot be written/)
    assert.match(refusal("ini", "", { a: { "x=y": 1 } }), /name of/)
    assert.match(refusal("ini", "", { "a]b": { x: 1 } }), /name of/)
    assert.match(refusal("ini", "", { a: { x: [1] } }), /list/)
  })

  const key = plainKey
  const line = fc.oneof(
    fc.constantFrom("", "; comment", "# comment", "  ; indented"),
    plainKey.map((name) => `[${name}]`),
    fc
      .tuple(
        key,
        fc.constantFrom("=", " = ", ": "),
        fc.constantFrom("", "v", "a b", '"q r"', "1 ; note", "x # y", "; n")
      )
      .map((parts) => parts.join(""))
  )
  // A value with both quotes may need quotes that it has: it is refused then, as tested above.
  const text = value.filter((one) => !/[\r\n]/.test(one) && !/^["']/.test(one) && !/".*'|'.*"/.test(one))

  it("for any file and values, the values are set and the rest is unchanged", () => {
    fc.assert(
      fc.property(
        fc.array(line, { maxLength: 12 }),
        fc.dictionary(plainKey, fc.dictionary(key, text, { maxKeys: 3 }), { maxKeys: 3 }),
        (lines, find) => {
          // Duplicate keys are tested above.
          const seen = new Set<string>()
          let section = ""
          const kept = lines.filter((one) => {
            const [first] = load(one).keys()
            if (one.startsWith("[")) section = one
            const double = first !== undefined && seen.has(section + first)
            if (first !== undefined) seen.add(section + first)
            return !double
          })
          const before = `${kept.join("\n")}\n`
          const result = patched("ini", before, find)
          const wanted = Object.entries(find).flatMap(([name, keys]) =>
            Object.entries(keys).map(([one, to]): [string, string] => [`${name}/${one}`, to])
          )
          const old = load(before)
          assert.deepStrictEqual(
            new Map([...load(result)].sort()),
            new Map([...new Map([...old, ...wanted])].sort())
          )
          assert.isAtMost(
            linesLost(before, result),
            wanted.filter(([name, to]) => old.has(name) && old.get(name) !== to).length
          )
        }
      ),
      { numRuns: 500 }
    )
  })
})

import { assert, describe, it } from "@effect/vitest"
import type { Schema } from "effect"
import fc from "fast-check"
import type { Find } from "../../../src/daemon/configPatch/find.ts"
import { linesLost, patched, plainKey, refusal, same, scalar, unmatched } from "./support.ts"

describe("Config parsers: json", () => {
  it("values are replaced; order, indentation and number formats are kept", () => {
    assert.strictEqual(
      patched(
        "json",
        '{\n\t"b": 1.0,\n\t"10": 12345678901234567890,\n\t"a": {"x": [1, 2], "y": "\\u0041"}\n}\n',
        {
          b: 1,
          "a.x.1": 3,
          "a.y": "A"
        }
      ),
      '{\n\t"b": 1.0,\n\t"10": 12345678901234567890,\n\t"a": {"x": [1, 3], "y": "\\u0041"}\n}\n'
    )
  })

  it("additions have the layout of their neighbours", () => {
    assert.strictEqual(
      patched("json", '{\r\n    "a": {"x": 1},\r\n    "l": []\r\n}', {
        "a.y": { z: [1, 2] },
        "l.0": true,
        n: { m: 1 }
      }),
      '{\r\n    "a": {"x": 1, "y": {"z": [1, 2]}},\r\n    "l": [\r\n        true\r\n    ],\r\n    "n": {\r\n        "m": 1\r\n    }\r\n}'
    )
    assert.strictEqual(patched("json", '{"a":1}', { b: [1, { c: 2 }] }), '{"a":1,"b":[1,{"c":2}]}')
  })

  it("a missing or empty file is created", () => {
    assert.strictEqual(patched("json", undefined, { "a.b": "x" }), '{\n  "a": {\n    "b": "x"\n  }\n}\n')
    assert.strictEqual(patched("json", " \n", { a: null }), '{\n  "a": null\n}\n')
  })

  it("values keep their type; maps are merged, lists replaced", () => {
    assert.deepStrictEqual(
      JSON.parse(
        patched("json", '{"m": {"a": 1, "l": [1, 2, 3]}}', { m: { b: "2", l: [4], n: null, t: true } })
      ),
      { m: { a: 1, l: [4], b: "2", n: null, t: true } }
    )
  })

  it("`*` matches every element of a map or list that the rest of the key fits", () => {
    assert.deepStrictEqual(
      JSON.parse(
        patched("json", '{"s": {"a": {"p": 1}, "b": {}, "c": 5}, "l": [{"p": 1}, [2]]}', {
          "s.*.p": 9,
          "l.*.0": 8
        })
      ),
      { s: { a: { p: 9 }, b: { p: 9 }, c: 5 }, l: [{ p: 1, 0: 8 }, [8]] }
    )
    assert.strictEqual(patched("json", "{}", { "a.*.b": 1 }), "{}")
  })

  it("an existing literal key with dots has precedence over splitting", () => {
    assert.deepStrictEqual(
      JSON.parse(patched("json", '{"a.b": 1, "c.d": {"e": 2}}', { "a.b": 3, "c.d.e": 4, "f.g": 5 })),
      {
        "a.b": 3,
        "c.d": { e: 4 },
        f: { g: 5 }
      }
    )
  })

  it("numbers are indices of lists; the next free index appends", () => {
    assert.deepStrictEqual(JSON.parse(patched("json", "[1]", { "0": 2, "1.a": 3 })), [2, { a: 3 }])
    assert.match(refusal("json", '{"l": [1]}', { "l.5": 2 }), /no index of a list of 1/)
    assert.match(refusal("json", '{"l": [1]}', { "l.x": 2 }), /no index/)
  })

  it("a missing container becomes a list if its keys are numbers from 0, else a map", () => {
    const json = (text: string | undefined, find: Find) => JSON.parse(patched("json", text, find))
    for (const text of [undefined, "", "{}", '{ "list": null }']) {
      assert.deepStrictEqual(json(text, { "list.0": "a", "list.1": "b" }), { list: ["a", "b"] })
      assert.deepStrictEqual(json(text, { list: { 0: "a", 1: { b: 1 } } }), { list: ["a", { b: 1 }] })
      const players = { "list.0.name": "bob", "list.0.level": 4 }
      assert.deepStrictEqual(json(text, players), { list: [{ name: "bob", level: 4 }] })
      assert.deepStrictEqual(json(text, { "list.0": "a", "list.a": 4 }), { list: { 0: "a", a: 4 } })
      assert.deepStrictEqual(json(text, { list: { 0: "a", b: 4 } }), { list: { 0: "a", b: 4 } })
      assert.deepStrictEqual(json(text, { "list.5": "a" }), { list: { 5: "a" } })
    }
    assert.deepStrictEqual(json(undefined, { "0.name": "bob", "0.level": 4 }), [{ name: "bob", level: 4 }])
    assert.deepStrictEqual(json('{ "list": {} }', { "list.0": "a" }), { list: { 0: "a" } }, "as it is there")
  })

  it("comments and trailing commas are kept in place", () => {
    const file = '// head\n{\n  "a": 1, // one\n  /* b */ "b": [1, 2,],\n  "c": {} // last\n}\n'
    assert.strictEqual(
      patched("json", file, { a: 2, "b.2": 3, "c.d": 4, e: 5 }),
      '// head\n{\n  "a": 2, // one\n  /* b */ "b": [1, 2, 3,],\n  "c": {\n    "d": 4\n  }, // last\n  "e": 5\n}\n'
    )
    assert.strictEqual(
      patched("json", '{\n  "a": 1, // one\n}\n', { b: 2 }),
      '{\n  "a": 1, // one\n  "b": 2,\n}\n'
    )
    assert.strictEqual(
      patched("json", "{\n  // nothing yet\n}\n", { a: { b: [] } }),
      '{\n  // nothing yet\n  "a": {\n    "b": []\n  }\n}\n'
    )
    assert.strictEqual(
      patched("json", '{"a": 1, "b": { // none\n}}', { "b.c": 2 }),
      '{"a": 1, "b": { // none\n  "c": 2\n}}'
    )
  })

  it("an index in brackets is an index of a list, as in files for SLS and Pterodactyl", () => {
    const file = '{"listeners": [{"host": "a"}, {"host": "b"}], "m": {"k[0]": 1}, "deep": [[1, 2]]}'
    assert.deepStrictEqual(
      JSON.parse(
        patched("json", file, {
          "listeners[0].host": "0.0.0.0",
          "listeners[1]": { port: 1 },
          "listeners[2].host": "c",
          "deep[0][1]": 3,
          "m.k[0]": 2
        })
      ),
      {
        listeners: [{ host: "0.0.0.0" }, { host: "b", port: 1 }, { host: "c" }],
        m: { "k[0]": 2 },
        deep: [[1, 3]]
      }
    )
    const made = { listeners: [{ host: "x", port: 2 }, 5] }
    const find = { "listeners[0].host": "x", "listeners[0].port": 2, "listeners[1]": 5 }
    for (const text of [undefined, "{}", '{"listeners": null}']) {
      assert.deepStrictEqual(JSON.parse(patched("json", text, find)), made)
    }
    assert.deepStrictEqual(JSON.parse(patched("json", undefined, { "[0].a": 1 })), [{ a: 1 }])
    assert.deepStrictEqual(JSON.parse(patched("json", '[{"a": 1}]', { "[0].a": 2 })), [{ a: 2 }])
    assert.match(refusal("json", "{}", { "l[1]": 1 }), /"1" is no index of a list of 0/)
    assert.match(refusal("json", '{"l": {"x": 1}}', { "l[0]": 1 }), /a map in place of a list/)
    assert.match(refusal("json", '{"l": []}', { "l[0].": 1 }), /no index|empty part/)
  })

  it("a key without a match is returned with the reason", () => {
    const file = '{"worlds": {}, "list": [1], "ok": {"a": {"x": 1}}}'
    assert.deepStrictEqual(
      unmatched("json", file, {
        "worlds.*.seed": 1,
        "list.*.x": 2,
        "none.*.x": 3,
        "ok.*.x": 4,
        new: { "*": 5, b: {} }
      }),
      [
        { key: "worlds.*.seed", reason: "`*` is in an empty list or map" },
        { key: "list.*.x", reason: "no element of `*` is a list or map" },
        { key: "none.*.x", reason: 'there is no list or map at "none"' }
      ]
    )
  })

  it("names of JavaScript's own properties are ordinary keys", () => {
    const result = patched(
      "json",
      '{"__proto__": {"a": 1}}',
      JSON.parse('{"__proto__.b": 2, "constructor": {"prototype": {"x": 1}}}')
    )
    assert.strictEqual(result, '{"__proto__": {"a": 1, "b": 2}, "constructor": {"prototype": {"x": 1}}}')
    assert.isUndefined(Reflect.get({}, "b"))
    assert.isUndefined(Reflect.get(Object, "x"))
  })

  it("a broken file is refused with the reason", () => {
    assert.match(refusal("json", '{"a": }', { a: 1 }), /not valid JSON: value expected at line 1, column 7$/)
    assert.match(refusal("json", '"text"', { a: 1 }), /neither an object nor an array/)
    assert.match(refusal("json", '{\n"a": 1,\n"b": x}', { a: 1 }), /invalid symbol at line 3, column 6$/)
    assert.match(refusal("json", '{"a": 1} {}', { a: 1 }), /not valid JSON/)
    assert.match(refusal("json", "[".repeat(100_000) + "]".repeat(100_000), { "0": 1 }), /nested/)
    assert.match(refusal("json", "{}", { "a..b": 1 }), /empty part/)
  })

  const tree = fc.letrec<{ node: Schema.Json; map: { readonly [key: string]: Schema.Json } }>((tie) => ({
    node: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      scalar,
      tie("map"),
      fc.array(tie("node"), { maxLength: 4 })
    ),
    map: fc.dictionary(plainKey, tie("node"), { maxKeys: 5, noNullPrototype: true })
  }))

  it("for any file and values, the values are set and the rest is unchanged", () => {
    fc.assert(
      fc.property(
        tree.map,
        fc.constantFrom(0, 2, "\t"),
        fc.dictionary(plainKey, fc.oneof(scalar, fc.array(tree.node, { maxLength: 3 })), {
          maxKeys: 4,
          noNullPrototype: true
        }),
        (file, indent, find) => {
          const before = JSON.stringify(file, null, indent)
          const result = patched("json", before, find)
          const expected = new Map(Object.entries(JSON.parse(before)))
          for (const [key, to] of Object.entries(find)) expected.set(key, JSON.parse(JSON.stringify(to)))
          const after: unknown = JSON.parse(result)
          same(new Map(Object.entries(Object(after))), expected)
          const changed = Object.keys(find).filter(
            (key) => typeof file[key] !== "object" || file[key] === null
          )
          if (indent !== 0 && changed.length === Object.keys(find).length) {
            // An addition puts a comma on the line before it, and opens an empty map.
            assert.isAtMost(linesLost(before, result), changed.length + 1)
          }
        }
      ),
      { numRuns: 300 }
    )
  })
})

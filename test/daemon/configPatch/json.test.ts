import { assert, describe, it } from "@effect/vitest"
import type { Schema } from "effect"
import fc from "fast-check"
import type { Find } from "../../../src/daemon/configPatch/PatchProblem.ts"
import { linesLost, patched, plainKey, refusal, same, scalar } from "./support.ts"

describe("Config parsers: json", () => {
  it("replaces values and keeps order, indentation and number formats", () => {
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

  it("what is added looks like its neighbours", () => {
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

  it("values keep their type; maps merge, lists replace", () => {
    assert.deepStrictEqual(
      JSON.parse(
        patched("json", '{"m": {"a": 1, "l": [1, 2, 3]}}', { m: { b: "2", l: [4], n: null, t: true } })
      ),
      { m: { a: 1, l: [4], b: "2", n: null, t: true } }
    )
  })

  it("`*` is every element of a map or list that has a place for the rest of the key", () => {
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

  it("a literal key with dots that the file has wins over splitting", () => {
    assert.deepStrictEqual(
      JSON.parse(patched("json", '{"a.b": 1, "c.d": {"e": 2}}', { "a.b": 3, "c.d.e": 4, "f.g": 5 })),
      {
        "a.b": 3,
        "c.d": { e: 4 },
        f: { g: 5 }
      }
    )
  })

  it("numbers count in lists; the one after the last appends", () => {
    assert.deepStrictEqual(JSON.parse(patched("json", "[1]", { "0": 2, "1.a": 3 })), [2, { a: 3 }])
    assert.match(refusal("json", '{"l": [1]}', { "l.5": 2 }), /no index of a list of 1/)
    assert.match(refusal("json", '{"l": [1]}', { "l.x": 2 }), /no index/)
  })

  it("what is not there becomes a list where its keys are numbers from 0, else a map", () => {
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

  it("keys of JavaScript's own are keys like any other", () => {
    const result = patched(
      "json",
      '{"__proto__": {"a": 1}}',
      JSON.parse('{"__proto__.b": 2, "constructor": {"prototype": {"x": 1}}}')
    )
    assert.strictEqual(result, '{"__proto__": {"a": 1, "b": 2}, "constructor": {"prototype": {"x": 1}}}')
    assert.isUndefined(Reflect.get({}, "b"))
    assert.isUndefined(Reflect.get(Object, "x"))
  })

  it("refuses broken files with the reason", () => {
    assert.match(refusal("json", '{"a": }', { a: 1 }), /not valid JSON: Unexpected token/)
    assert.match(refusal("json", '"text"', { a: 1 }), /neither an object nor an array/)
    assert.match(refusal("json", '{"a": 1} // no', { a: 1 }), /not valid JSON/)
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

  it("any file, any values: the values are set, all else is as it was", () => {
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
            // an addition ends the line before it with a comma, and an empty map opens
            assert.isAtMost(linesLost(before, result), changed.length + 1)
          }
        }
      ),
      { numRuns: 300 }
    )
  })
})

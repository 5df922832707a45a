import { assert, describe, it } from "@effect/vitest"
import type { Schema } from "effect"
import fc from "fast-check"
import { parse, parseDocument, stringify } from "yaml"
import { linesLost, patched, plainKey, refusal, same, scalar, unmatched } from "./support.ts"

const file = `# head
motd: Hi   # greeting

list:
- a   # one
- b
nested:
    deep: 1
    # end of nested
flow: {x: 1, y: [1, 2]}
text: |
  line

a.b: 3
empty:
last: 'q'
`

describe("Config parsers: yaml", () => {
  it("values are replaced in place; comments, order, quotes and layout are kept", () => {
    assert.strictEqual(
      patched("yaml", file, { motd: "Hello", "nested.deep": 2, "flow.y.1": 5, "list.1": "c", last: "it's" }),
      file
        .replace("Hi ", "Hello ")
        .replace("deep: 1", "deep: 2")
        .replace("[1, 2]", "[1, 5]")
        .replace("- b", "- c")
        .replace("'q'", "'it''s'")
    )
  })

  it("with additions the layout is one throughout, with the indentation of the file", () => {
    assert.strictEqual(
      patched("yaml", file, {
        "nested.more.x": true,
        "flow.z": "v",
        "list.2": { k: 1 },
        "empty.a": 1,
        new: []
      }),
      file
        .replace("Hi   #", "Hi #")
        .replace("- a   # one\n- b\n", "  - a # one\n  - b\n  - k: 1\n")
        .replace("deep: 1\n", "deep: 1\n    more:\n        x: true\n")
        .replace("[1, 2]}", "[1, 2], z: v}")
        .replace("|\n  line", "|\n    line")
        .replace("empty:\n", "empty:\n    a: 1\n")
        .concat("new: []\n")
    )
    const spigot = "a:\n- b\nc:\n  d: 1.50\n  e: 'x'\n  f: 0x1F # g\n"
    assert.strictEqual(patched("yaml", spigot, { "c.h": true }), `${spigot}  h: true\n`)
  })

  it("lists are replaced, maps merged, other values replaced by maps", () => {
    const result = patched("yaml", file, { list: ["x"], text: { t: 1 }, "motd.m": 2, nested: 5 })
    assert.deepStrictEqual(parse(result), {
      ...parse(file),
      list: ["x"],
      text: { t: 1 },
      motd: { m: 2 },
      nested: 5
    })
    for (const comment of ["# head", "# greeting", "# end of nested"]) assert.include(result, comment)
  })

  it("values keep their YAML type, also for readers of YAML 1.1", () => {
    assert.strictEqual(
      patched("yaml", undefined, {
        a: "yes",
        b: "12",
        c: 12,
        d: null,
        e: "1:30",
        f: true,
        g: "x: y",
        h: "a\nb",
        i: "\u0085"
      }),
      'a: "yes"\nb: "12"\nc: 12\nd: null\ne: "1:30"\nf: true\ng: "x: y"\nh: "a\\nb"\ni: "\\u0085"\n'
    )
  })

  it("an existing literal key with dots has precedence over splitting", () => {
    assert.strictEqual(patched("yaml", file, { "a.b": 4 }), file.replace("a.b: 3", "a.b: 4"))
    assert.strictEqual(patched("yaml", "w:\n  a.b:\n    c: 1\n", { "w.a.b.c": 2 }), "w:\n  a.b:\n    c: 2\n")
  })

  it("`*` matches every element of a list or map", () => {
    assert.strictEqual(
      patched("yaml", "s:\n  a: {p: 1}\n  b:\n    q: 2\n  c: 3\nl:\n  - p: 1\n  - p: 2\n", {
        "s.*.p": 9,
        "l.*.p": 8
      }),
      "s:\n  a: {p: 9}\n  b:\n    q: 2\n    p: 9\n  c: 3\nl:\n  - p: 8\n  - p: 8\n"
    )
    assert.strictEqual(patched("yaml", "{}", { "*.x": 1, "b.y": 2 }), '{ b: { "y": 2, x: 1 } }')
  })

  it("an index in brackets is an index of a list, as in files for SLS and Pterodactyl", () => {
    const bungee = "listeners:\n- query_port: 1 # q\n  host: 0.0.0.0:1\nip_forward: false\n"
    assert.strictEqual(
      patched("yaml", bungee, { "listeners[0].host": "0.0.0.0:25565", "listeners[0].query_port": 25565 }),
      bungee.replace("0.0.0.0:1", "0.0.0.0:25565").replace("query_port: 1", "query_port: 25565")
    )
    assert.strictEqual(
      patched("yaml", undefined, { "listeners[0].host": "a", "listeners[0].port": 1 }),
      "listeners:\n  - host: a\n    port: 1\n"
    )
    assert.match(refusal("yaml", bungee, { "listeners[3].host": 1 }), /"3" is no index of a list of 1/)
  })

  it("a key without a match is returned with the reason", () => {
    assert.deepStrictEqual(unmatched("yaml", "worlds:\na: 1\n", { "worlds.*.seed": 1, a: 1 }), [
      { key: "worlds.*.seed", reason: 'there is no list or map at "worlds"' }
    ])
  })

  it("keys that YAML reads as numbers or booleans are found by their text", () => {
    assert.strictEqual(
      patched("yaml", "1.10: a\ntrue: b\n", { "1.10": "x", true: "y" }),
      '1.10: x\ntrue: "y"\n'
    )
  })

  it("an alias becomes a copy if its anchor or the alias itself changes", () => {
    const shared = "base: &b\n  k: 1\none: *b\ntwo: *b\n"
    assert.deepStrictEqual(parse(patched("yaml", shared, { "base.k": 2, "one.k": 3 })), {
      base: { k: 2 },
      one: { k: 3 },
      two: { k: 1 }
    })
    assert.strictEqual(
      patched("yaml", shared, { "one.j": 3 }),
      "base: &b\n  k: 1\none:\n  k: 1\n  j: 3\ntwo: *b\n"
    )
    assert.deepStrictEqual(parse(patched("yaml", "l: [&x 1, 2]\ny: *x\n", { l: [] })), { l: [], y: 1 })
  })

  it("CRLF, a missing final line end, a byte order mark and the digits of long numbers are kept", () => {
    assert.strictEqual(
      patched("yaml", "\ufeffa:\r\n  b: 1\r\nn: 12345678901234567890 # n\r\nc: 2", { "a.c": 2, d: 3 }),
      "\ufeffa:\r\n  b: 1\r\n  c: 2\r\nn: 12345678901234567890 # n\r\nc: 2\r\nd: 3"
    )
  })

  it("a missing or empty file is created; the comments of an empty one are kept", () => {
    assert.strictEqual(
      patched("yaml", undefined, { "a.b": [1, { c: 2, d: 3 }] }),
      "a:\n  b:\n    - 1\n    - c: 2\n      d: 3\n"
    )
    assert.strictEqual(patched("yaml", "# nothing yet", { a: 1 }), "# nothing yet\na: 1\n")
  })

  it("a missing container becomes a list if its keys are numbers from 0, else a map", () => {
    const find = { "list.0.name": "bob", "list.0.level": 4, "list.1.name": "eve" }
    const list = "list:\n  - name: bob\n    level: 4\n  - name: eve\n"
    assert.strictEqual(patched("yaml", undefined, find), list)
    assert.strictEqual(patched("yaml", "a: 1\nlist:\n", find), `a: 1\n${list}`)
    assert.strictEqual(patched("yaml", undefined, { "0": "a", "1": "b" }), "- a\n- b\n")
    assert.strictEqual(
      patched("yaml", undefined, { "list.0": "a", "list.b": 4 }),
      'list:\n  "0": a\n  b: 4\n'
    )
  })

  it("a layout that cannot be edited in place is printed again with its comments", () => {
    const result = patched("yaml", "? a\n: &x !!map\n  # why\n  b: 1\n", { a: "flat", c: 1 })
    assert.deepStrictEqual(parse(result), { a: "flat", c: 1 })
  })

  it("names of JavaScript's own properties are ordinary keys", () => {
    const result = patched(
      "yaml",
      "a: 1\n",
      JSON.parse('{"__proto__.x": 2, "constructor": {"prototype": {"y": 1}}}')
    )
    assert.strictEqual(result, 'a: 1\n__proto__:\n  x: 2\nconstructor:\n  prototype:\n    "y": 1\n')
    assert.isUndefined(Reflect.get({}, "x"))
  })

  it("broken files and alias bombs are refused with the reason", () => {
    assert.match(refusal("yaml", "a: [1", { a: 1 }), /not valid YAML: .*line 1/)
    assert.match(refusal("yaml", "just text", { a: 1 }), /neither a map nor a list/)
    assert.match(refusal("yaml", "a: 1\n---\nb: 2\n", { a: 1 }), /more than one document/)
    assert.match(refusal("yaml", "[".repeat(20_000), { a: 1 }), /not valid YAML|nested too deep/)
    assert.match(refusal("yaml", "a: *b\n", { c: 1 }), /\*b stands for nothing before it|not valid YAML/)
    const bomb = Array.from({ length: 30 }, (_, n) => `a${n + 1}: &a${n + 1} [${`*a${n},`.repeat(9)}]`)
    assert.match(refusal("yaml", `a0: &a0 [x]\n${bomb.join("\n")}\n`, { "a0.0": "y" }), /too many aliases/)
  })

  const node = fc.letrec<{ node: Schema.Json; map: { readonly [key: string]: Schema.Json } }>((tie) => ({
    node: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      scalar,
      tie("map"),
      fc.array(tie("node"), { maxLength: 3 })
    ),
    map: fc.dictionary(plainKey, tie("node"), { maxKeys: 5, noNullPrototype: true })
  }))

  /** Files in many layouts, with comments and empty lines at every allowed position. */
  const source = fc
    .tuple(
      node.map,
      fc.record({ indent: fc.constantFrom(2, 4), indentSeq: fc.boolean(), singleQuote: fc.boolean() }),
      fc.array(fc.nat({ max: 40 }), { maxLength: 4 })
    )
    .map(([values, options, places]) => {
      const lines = stringify(values, {
        ...options,
        lineWidth: 0,
        blockQuote: false,
        collectionStyle: "any"
      }).split("\n")
      for (const at of places) if (at < lines.length) lines.splice(at, 0, `# comment ${at}`)
      const text = lines
        .map((line, n) => (/^ *[a-z]+: [a-z]+$/.test(line) ? `${line}  # c${n}` : line))
        .join("\n")
      return { values, text }
    })
    .filter(({ text }) => parseDocument(text).errors.length === 0)

  const comments = (all: string) => all.match(/# comment \d+$/gm)

  const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

  it("for any file and values, the values are set and the rest is unchanged", () => {
    fc.assert(
      fc.property(
        source,
        fc.dictionary(plainKey, fc.oneof(scalar, fc.array(node.node, { maxLength: 3 })), {
          maxKeys: 4,
          noNullPrototype: true
        }),
        ({ values, text }, find) => {
          const result = patched("yaml", text, find)
          const expected = new Map(Object.entries(Object(plain(values))))
          for (const [key, to] of Object.entries(find)) expected.set(key, plain(to))
          same(new Map(Object.entries(Object(parse(result)))), expected)
          const isPlain = (one: unknown) => typeof one !== "object" || one === null
          const replaced = Object.keys(find).filter((key) => Object.hasOwn(values, key))
          if (replaced.every((key) => isPlain(values[key]))) same(comments(result), comments(text))
          const inPlace = ([key, to]: [string, unknown]) =>
            replaced.includes(key) && isPlain(values[key]) && isPlain(to)
          if (Object.entries(find).every(inPlace)) assert.isAtMost(linesLost(text, result), replaced.length)
        }
      ),
      { numRuns: 400 }
    )
  })

  it("for any file and nested keys, the values are set and no comment is lost", () => {
    const path = fc.array(plainKey, { minLength: 2, maxLength: 3 }).map((keys) => keys.join("."))
    fc.assert(
      fc.property(source, path, scalar, ({ values, text }, key, to) => {
        const steps: Array<unknown> = [values]
        for (const part of key.split(".")) {
          const at = Object(steps.at(-1))
          steps.push(Object.hasOwn(at, part) ? at[part] : undefined)
        }
        // Names are no indices of lists, and a value that is replaced as a whole loses its comments.
        fc.pre(!steps.some(Array.isArray) && Object(steps.at(-1)) !== steps.at(-1))
        const result = patched("yaml", text, { [key]: to })
        const found = key
          .split(".")
          .reduce<unknown>(
            (at, part) => (Object.hasOwn(Object(at), part) ? Object(at)[part] : undefined),
            parse(result)
          )
        same(found, to)
        assert.deepStrictEqual(comments(result), comments(text))
      }),
      { numRuns: 300 }
    )
  })
})

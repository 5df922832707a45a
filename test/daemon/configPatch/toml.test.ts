import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { getStaticTOMLValue, parseTOML } from "toml-eslint-parser"
import { type Find, standIn } from "../../../src/daemon/configPatch/find.ts"
import { plainKey as anyKey, linesLost, patched, refusal, same, unmatched, value } from "./support.ts"

const velocity = `# Config version.
config-version = "2.7"
bind = "0.0.0.0:25577"
motd = '<#09add3>A server'   # shown
show-max-players = 500

[servers]
lobby = "127.0.0.1:30066"
try = [
    "lobby", # first
]

[advanced]
	# of the proxy in front
	haproxy-protocol = false
	ratio = 1.5
`

const toml = (text: string | undefined, find: Find): string => patched("toml", text, find)
const read = (text: string) => getStaticTOMLValue(parseTOML(text))

describe("Config parsers: toml", () => {
  it("values are replaced in place; comments, order, quotes and layout are kept", () => {
    assert.strictEqual(
      toml(velocity, {
        bind: "127.0.0.1:5",
        motd: "Hi",
        "advanced.haproxy-protocol": true,
        "servers.try.0": "hub"
      }),
      velocity
        .replace("0.0.0.0:25577", "127.0.0.1:5")
        .replace("<#09add3>A server", "Hi")
        .replace("false", "true")
        .replace('"lobby",', '"hub",')
    )
    const dos = `\ufeff${velocity.trimEnd().replaceAll("\n", "\r\n")}`
    assert.strictEqual(toml(dos, { "advanced.ratio": 2.5 }), dos.replace("1.5", "2.5"))
  })

  it("a value keeps the form that stands in the file: number with a fraction, date, text", () => {
    const file = "a = 1.0\nb = 1979-05-27\nc = 1_000\nd = 'x'\ne = \"1\"\nf = +inf\n"
    assert.strictEqual(
      toml(file, { a: 2, b: "1980-01-02T03:04:05Z", c: 2000, d: "it's", e: "\u0007\u007f", f: 1e300 }),
      'a = 2.0\nb = 1980-01-02T03:04:05Z\nc = 2000\nd = "it\'s"\ne = "\\u0007\\u007f"\nf = 1e+300\n'
    )
    assert.strictEqual(toml(file, { a: 1, b: "1979-05-27", c: 1000 }), file)
    assert.strictEqual(toml(file, { b: "soon" }), file.replace("1979-05-27", '"soon"'))
    const given = { a: standIn("3"), c: standIn(25565), d: standIn("true"), e: standIn(5) }
    assert.strictEqual(
      toml(file, given),
      "a = 3.0\nb = 1979-05-27\nc = 25565\nd = 'true'\ne = \"5\"\nf = +inf\n"
    )
  })

  it("new keys stand behind the keys of their table, new tables behind it with a header", () => {
    assert.strictEqual(
      toml(velocity, {
        top: 1,
        "servers.hub": "b",
        "servers.try.1": "hub",
        "advanced.log": true,
        "advanced.deep.x": 1,
        "forced hosts": { a: ["lobby"] }
      }),
      velocity
        .replace("= 500\n", "= 500\ntop = 1\n")
        .replace("# first\n]\n", '# first\n    "hub",\n]\nhub = "b"\n')
        .replace("1.5\n", '1.5\n\tlog = true\n\n[advanced.deep]\nx = 1\n\n["forced hosts"]\na = ["lobby"]\n')
    )
    assert.strictEqual(toml("# of a\n[a]\nb = 1", { c: 2, "a.d": 3 }), "c = 2\n\n# of a\n[a]\nb = 1\nd = 3")
    assert.strictEqual(toml("[a.b]\nc = 1\n", { "a.d": 2 }), "[a.b]\nc = 1\n\n[a]\nd = 2\n")
  })

  it("keys with dots, tables in braces and arrays of tables grow in their form", () => {
    const file =
      "a.b.c = 1 # one\nt = { x = 1, y = {} }\nu = { p.q = 1 }\n[[l]]\nn = 1\n[l.m]\no = 1\n[[l]]\nn = 2\n[z]\n"
    assert.strictEqual(
      toml(file, {
        "a.b.d": 2,
        "t.z": 3,
        "t.y.w": [4],
        "u.p.r": 5,
        "l.0.m.p": 6,
        "l.*.n": 7,
        "l.1.k.v": 8,
        "l.2": { n: 9 }
      }),
      [
        "a.b.c = 1 # one",
        "a.b.d = 2",
        "t = { x = 1, y = { w = [4] }, z = 3 }",
        "u = { p = { q = 1, r = 5 } }",
        "[[l]]",
        "n = 7",
        "[l.m]",
        "o = 1",
        "p = 6",
        "[[l]]",
        "n = 7",
        "",
        "[l.k]",
        "v = 8",
        "",
        "[[l]]",
        "n = 9",
        "[z]",
        ""
      ].join("\n")
    )
  })

  it("lists are replaced, also arrays of tables; a value replaces a table", () => {
    assert.strictEqual(toml("l = [\n  1, # one\n  2, # two\n]\n", { l: [3] }), "l = [\n  3, # two\n]\n")
    assert.strictEqual(
      toml("l = [1,2]\nm = []\n", { l: [], m: [[1], { a: 2 }] }),
      "l = []\nm = [[1], { a = 2 }]\n"
    )
    same(read(toml("[[l]]\na = 1\n[l.b]\n[[l]]\n[m]\n", { l: [{ c: 1 }], m: 2 })), { l: [{ c: 1 }], m: 2 })
    same(read(toml("x = 1\n[[l]]\na = 1\n[m]\n", { l: [] })), { x: 1, l: [], m: {} })
  })

  it("a missing or empty file is created", () => {
    const made = 'a = 1\n\n[b.c]\n"d e" = [1, "x"]\n\n[[l]]\nx = 1\n'
    for (const text of [undefined, ""])
      assert.strictEqual(toml(text, { "b.c.d e": [1, "x"], a: 1, l: [{ x: 1 }] }), made)
  })

  it("a key without a match is returned; a broken file and a null are refused with the reason", () => {
    assert.deepStrictEqual(unmatched("toml", "a = {}\n", { "a.*.b": 1 }), [
      { key: "a.*.b", reason: "`*` is in an empty list or map" }
    ])
    assert.strictEqual(
      refusal("toml", "a = 1\n\na = 2\n", { a: 1 }),
      "it is not valid TOML: defining a key multiple times is invalid at line 3, column 1"
    )
    assert.match(refusal("toml", "[server]\nport: 1\n", { a: 1 }), /not valid TOML: .* at line 2, column/)
    assert.match(refusal("toml", "a = 1\n", { b: [{ c: null }] }), /"b" has null, which TOML cannot hold/)
    assert.match(refusal("toml", "a = 1\n", { "[0]": 1 }), /a map in place of a list/)
    for (const deep of [`a${".a".repeat(9_000)} = 1`, `a = ${"[".repeat(900)}${"]".repeat(900)}`])
      assert.match(refusal("toml", deep, { b: 1 }), /nested/)
  })

  it("names of JavaScript's own properties are ordinary keys", () => {
    const find = JSON.parse('{"__proto__.b": 2, "constructor": {"prototype": {"x": 1}}}')
    assert.strictEqual(
      toml("[__proto__]\na = 1\n", find),
      "[__proto__]\na = 1\nb = 2\n\n[constructor.prototype]\nx = 1\n"
    )
    assert.isUndefined(Reflect.get({}, "b"))
  })

  // the reader of these tests makes it a prototype
  const plainKey = anyKey.filter((name) => name !== "__proto__")

  type Tree = { readonly [key: string]: unknown }
  const leaf = fc.oneof(
    value,
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.boolean()
  )
  const tree = fc.letrec<{ node: unknown; map: Tree }>((tie) => ({
    node: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      leaf,
      tie("map"),
      fc.array(leaf, { maxLength: 3 }),
      fc.array(tie("map"), { maxLength: 3 })
    ),
    map: fc.dictionary(plainKey, tie("node"), { maxKeys: 4, noNullPrototype: true })
  }))

  const isTree = (node: unknown): node is Tree =>
    typeof node === "object" && node !== null && !Array.isArray(node)
  const key = (name: string) => (/^[\w-]+$/.test(name) ? name : JSON.stringify(name))
  const inline = (node: unknown): string =>
    isTree(node)
      ? `{${Object.entries(node).map(([name, child]) => `${key(name)}=${inline(child)}`)}}`
      : Array.isArray(node)
        ? `[ ${node.map(inline)} ]`
        : JSON.stringify(node).replaceAll("\x7f", "\\u007f")

  /** Writes a file with a comment in each table; `styles` chooses headers, dots or braces for each table. */
  const write = (map: Tree, path: string, styles: () => number): ReadonlyArray<string> => {
    const pairs: Array<string> = []
    const tables: Array<string> = []
    for (const [name, node] of Object.entries(map)) {
      const inner = path === "" ? key(name) : `${path}.${key(name)}`
      const style = styles() % 4
      const dots = isTree(node) ? Object.entries(node) : []
      if (style === 0 && dots.length > 0)
        for (const [child, of] of dots)
          pairs.push(`${key(name)}.${key(child)} = ${inline(of)} # ${pairs.length}`)
      else if (
        style === 1 ||
        !(isTree(node) || (Array.isArray(node) && node.length > 0 && node.every(isTree)))
      )
        pairs.push(`${key(name)} = ${inline(node)}`)
      else {
        const [open, close] = isTree(node) ? ["[", "]"] : ["[[", "]]"]
        for (const item of [node].flat().filter(isTree))
          tables.push(`# of ${inner.length}`, `${open}${inner}${close}`, ...write(item, inner, styles))
      }
    }
    return [...pairs, ...tables]
  }
  const source = fc
    .tuple(
      tree.map,
      fc.array(fc.nat({ max: 3 }), { minLength: 9, maxLength: 9 }),
      fc.constantFrom("\n", "\r\n"),
      fc.boolean()
    )
    .map(([map, styles, end, ended]) => {
      let tables = 0
      const lines = write(map, "", () => styles[tables++ % styles.length] ?? 0)
      return { map, text: lines.join(end) + (ended ? end : "") }
    })

  const lines = (text: string) => `${text.replaceAll("\r", "").trimEnd()}\n`
  const plain = (node: unknown): unknown => JSON.parse(JSON.stringify(node))
  const entries = (node: unknown) => new Map(Object.entries(Object(node)))

  it("for any file and values, the values are set and the rest is unchanged", () => {
    fc.assert(
      fc.property(
        source,
        fc.dictionary(plainKey, fc.oneof(leaf, fc.array(tree.node, { maxLength: 3 })), {
          maxKeys: 4,
          noNullPrototype: true
        }),
        ({ map, text }, find) => {
          const result = toml(text, plain(find) as Find)
          const expected = entries(plain(map))
          for (const [name, to] of Object.entries(find)) expected.set(name, plain(to))
          same(plain(Object.fromEntries(entries(read(result)))), plain(Object.fromEntries(expected)))
          const changed = Object.keys(find).filter((name) => Object.hasOwn(map, name))
          if (changed.every((name) => Object(map[name]) !== map[name]))
            assert.isAtMost(
              linesLost(lines(text), lines(result)),
              changed.length + (text.trim() === "" ? 1 : 0)
            )
          if (text.includes("\r\n")) assert.notMatch(result, /[^\r]\n/)
        }
      ),
      { numRuns: 300 }
    )
  })

  it("for any file and nested keys, the values are set and no comment is lost", () => {
    const path = fc.array(plainKey, { minLength: 2, maxLength: 3 })
    fc.assert(
      fc.property(source, path, leaf, ({ map, text }, names, to) => {
        const steps: Array<unknown> = [map]
        for (const name of names) {
          const at = Object(steps.at(-1))
          steps.push(Object.hasOwn(at, name) ? at[name] : undefined)
        }
        fc.pre(!steps.some(Array.isArray) && Object(steps.at(-1)) !== steps.at(-1))
        const result = toml(text, { [names.join(".")]: plain(to) as string })
        const found = names.reduce<unknown>((at, name) => entries(at).get(name), read(result))
        same(found, plain(to))
        const comments = (all: string) => all.match(/# (?:of )?\d+/g)
        assert.deepStrictEqual(comments(result), comments(text))
      }),
      { numRuns: 300 }
    )
  })
})

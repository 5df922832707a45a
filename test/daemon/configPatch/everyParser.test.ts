import { assert, describe, it } from "@effect/vitest"
import { DOMParser } from "@xmldom/xmldom"
import { Result } from "effect"
import fc from "fast-check"
import { getStaticTOMLValue, parseTOML } from "toml-eslint-parser"
import { parse } from "yaml"
import type { ConfigParser } from "../../../src/contract/domain/ConfigPatch.ts"
import { standIn } from "../../../src/daemon/configPatch/find.ts"
import { patchText } from "../../../src/daemon/configPatch/patchText.ts"
import { patched, value } from "./support.ts"

/** A file with one value that is patched, between parts that no patch names. */
interface Form {
  readonly parser: ConfigParser
  readonly key: string
  readonly top: string
  /** Odd parts of a file in which every byte must stay. */
  readonly noise: ReadonlyArray<string>
  readonly line: readonly [string, string]
  readonly bottom: string
  /** The text of a file's value, in quotes for formats with types. */
  readonly text: (raw: string) => string
  readonly read: (file: string, written: string) => unknown
}

const forms: ReadonlyArray<Form> = [
  {
    parser: "properties",
    key: "slot",
    top: "",
    noise: ["#slot=1", "  ! x", "", "a\\:b \t: c\\\n   d", "slot.x=1", "uni=\\u00e9é", "empty", "slots=1"],
    line: ["slot = ", ""],
    bottom: "",
    text: (raw) => raw,
    read: (_, written) =>
      written.replace(/\\(?:u(.{4})|(.))/g, (_all, code: string | undefined, char: string) =>
        code === undefined
          ? ({ t: "\t", n: "\n", r: "\r", f: "\f" }[char] ?? char)
          : String.fromCharCode(Number.parseInt(code, 16))
      )
  },
  {
    parser: "ini",
    key: "S.slot",
    top: "slot=1\n[T]\nslot = 2\n[S]\n",
    noise: ["; slot=1", "\t# x", "", "a :  b ; c", 'q="x;y" ; z', "slots=1", "alone", "[[odd]"],
    line: ["slot\t=  ", "  ; why = so"],
    bottom: "\n[U]\nslot=3\n",
    text: (raw) => raw,
    read: (_, written) => /^(["'])(.*)\1$/s.exec(written)?.[2] ?? written
  },
  {
    parser: "xml",
    key: "a.p[@name='x'].@slot",
    top: "<?xml version='1.0'?>\n<a\t>\n",
    noise: [
      "<!-- slot='1' -->",
      "\t<b   c = '1'\td=\"&#65;\"/>",
      "",
      "<slot>1</slot  >",
      "<![CDATA[<p>]]> &gt;",
      "<e></e>"
    ],
    line: ["<p   name='x'\n  slot='", '\' z="1" />'],
    bottom: "</a  >",
    text: (raw) => raw.replace(/[&<']/g, (char) => `&#${char.charCodeAt(0)};`),
    read: (file) =>
      [
        ...new DOMParser({ onError: () => undefined, normalizeLineEndings: (raw) => raw })
          .parseFromString(file, "text/xml")
          .getElementsByTagName("p")
      ]
        .at(0)
        ?.getAttribute("slot")
  },
  {
    parser: "json",
    key: "m.slot",
    top: '{ "slot" : 1.50, "m":{\n',
    noise: [
      '"a" :1e2,',
      "// slot: 1",
      "",
      '"b": [1,2 , 3.0],',
      '"\\u0063":"\\u00e9" ,',
      "/* , */",
      '"d":{"slot":\ttrue},'
    ],
    line: ['"slot"   :  ', "  , // why"],
    bottom: '"end":0 } }\n',
    text: (raw) => JSON.stringify(raw),
    read: (_, written) => JSON.parse(written)
  },
  {
    parser: "yaml",
    key: "m.slot",
    top: "slot: 1.50\nm:\n",
    noise: [
      "  # slot: 1",
      "",
      "  a:   [1,  yes, ~ ] # b",
      "  'c' : 0x1F",
      "  d: |\n    slot: 1\n     x",
      "  ? e\n  : f",
      "  g:\n  - slot: No"
    ],
    line: ["  slot:   ", "   # why"],
    bottom: "z: &x {slot: 1}\n",
    text: (raw) => JSON.stringify(raw),
    read: (file) => parse(file, { uniqueKeys: false }).m.slot
  },
  {
    parser: "toml",
    key: "m.slot",
    top: "slot = 1.50\n[m]\n",
    noise: [
      "# slot = 1",
      "",
      "a.slot = 1979-05-27 # b",
      "b = [ 1,\n  2.0, ] # c",
      "'c' = 0x1F",
      'd = """\nslot = 1"""',
      "e = { slot  = 1 }"
    ],
    line: ["slot   =  ", " # why"],
    bottom: "[z]\nslot = 1\n",
    text: (raw) => JSON.stringify(raw),
    // biome-ignore lint/suspicious/noExplicitAny: the type of any TOML file
    read: (file) => (getStaticTOMLValue(parseTOML(file)) as any).m.slot
  }
]

/** A file of any form up to its value and behind it, with noise in both parts. */
const file = fc
  .tuple(
    fc.constantFrom(...forms),
    fc.shuffledSubarray([0, 1, 2, 3, 4, 5, 6]),
    fc.nat(7),
    fc.constantFrom("\n", "\r\n")
  )
  .map(([form, lines, cut, end]) => {
    const noise = (some: ReadonlyArray<number>) => some.map((n) => `${form.noise[n] ?? ""}\n`).join("")
    const dos = (text: string) => text.replaceAll("\n", end)
    return {
      form,
      head: dos(form.top + noise(lines.slice(0, cut)) + form.line[0]),
      tail: dos(`${form.line[1]}\n${noise(lines.slice(cut))}${form.bottom}`)
    }
  })

const typed: ReadonlyArray<ConfigParser> = ["json", "yaml", "toml"]
const words: ReadonlyArray<readonly [string, string]> = [
  ["True", "False"],
  ["FALSE", "TRUE"],
  ["yes", "no"],
  ["No", "Yes"],
  ["off", "on"],
  ["true", "false"]
]

describe("Config parsers: all (spec 4.9)", () => {
  it("for any file and text, the text is set and every other byte stays", () => {
    fc.assert(
      fc.property(file, value, value, ({ form, head, tail }, old, to) => {
        const plain = old.replace(/[^a-z]/gi, "") || "x"
        const before = head + form.text(plain) + tail
        const outcome = patchText(form.parser, before, { [form.key]: to })
        if (Result.isFailure(outcome)) {
          assert.include(["ini", "xml"], form.parser, outcome.failure.reason)
          assert.match(outcome.failure.reason, /cannot (?:be written|hold)/)
          return
        }
        const after = patched(form.parser, before, { [form.key]: to })
        assert.strictEqual(after.slice(0, head.length), head)
        assert.strictEqual(after.slice(-tail.length), tail)
        const bare = form.parser === "ini" && /^(["']).*\1$/s.test(to) ? to.slice(1, -1) : to
        assert.strictEqual(form.read(after, after.slice(head.length, -tail.length)), bare)
        assert.strictEqual(patched(form.parser, before, { [form.key]: plain }), before)
      }),
      { numRuns: 200 }
    )
  })

  it("a boolean keeps the words and the case of the file, in formats of text and in YAML", () => {
    fc.assert(
      fc.property(
        file.filter(({ form }) => !["json", "toml"].includes(form.parser)),
        fc.constantFrom(...words),
        fc.boolean(),
        ({ form, head, tail }, [old, other], variable) => {
          const now = /^(?:true|yes|on)$/i.test(old)
          const set = (to: boolean) =>
            patched(form.parser, head + old + tail, { [form.key]: variable ? standIn(`${to}`) : to })
          assert.strictEqual(set(!now), head + other + tail)
          assert.strictEqual(set(now), head + old + tail)
        }
      ),
      { numRuns: 100 }
    )
  })

  it("a whole number in place of one with a fraction has a fraction, in formats with types", () => {
    fc.assert(
      fc.property(
        file.filter(({ form }) => typed.includes(form.parser)),
        fc.constantFrom("1.0", "2.50", "1e3", "-0.5"),
        fc.integer(),
        fc.boolean(),
        ({ form, head, tail }, old, to, variable) => {
          fc.pre(Number(old) !== to)
          const find = { [form.key]: variable ? standIn(`${to}`) : to }
          assert.strictEqual(patched(form.parser, head + old + tail, find), `${head}${to}.0${tail}`)
          const list = (text: string) => `${head}[${text}]${tail}`
          // YAML is printed again: `? e` is `e`
          const bare = (text: string) => text.replace(/[\s?]/g, "")
          const more = patched(form.parser, list(old), { [form.key]: [to, to] })
          assert.strictEqual(bare(more), bare(list(`${to}.0, ${to}.0`)))
          const fewer = patched(form.parser, list(`${old}, ${old}, 7`), { [form.key]: [to] })
          assert.strictEqual(bare(fewer), bare(list(`${to}.0`)))
          assert.strictEqual(
            patched(form.parser, head + old + tail, { [form.key]: Number(old) }),
            head + old + tail
          )
        }
      ),
      { numRuns: 100 }
    )
  })

  it("any text is refused, or patched so that a second time changes nothing", () => {
    const piece = fc.oneof(
      fc.constantFrom(..."[]{}()<>=:;#,.\"'`\\/*&!|?-@%~\t\n\r \0\u2028\ufeff"),
      fc.constantFrom(
        "a",
        "slot",
        "[[",
        '"""',
        "'''",
        "<a>",
        "</a>",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&a ",
        "*a"
      ),
      fc.constantFrom(
        "/*",
        "*/",
        "//",
        "---\n",
        "<<: ",
        "\\u00",
        "yes",
        "1.0",
        "1e999",
        "0x",
        "\r\n",
        "  ",
        "- "
      ),
      value
    )
    fc.assert(
      fc.property(
        fc.constantFrom(...forms.map(({ parser }) => parser), "file" as const),
        fc.array(piece, { maxLength: 25 }),
        fc.dictionary(
          fc.constantFrom("a", "slot", "a.*", "*", "a.slot", "a.@b", "[0]", "a[@b='c'].d"),
          value,
          { maxKeys: 2 }
        ),
        (parser, pieces, find) => {
          const once = patchText(parser, pieces.join(""), find)
          if (Result.isFailure(once)) return
          const textOf = ({ text }: typeof once.success) => text
          // A line that became empty has no start that matches a second time.
          assert.deepStrictEqual(
            Result.map(patchText(parser, once.success.text, find), textOf),
            Result.map(once, textOf)
          )
        }
      ),
      { numRuns: 1000 }
    )
  })
})

import { assert, describe, it } from "@effect/vitest"
import { DOMParser } from "@xmldom/xmldom"
import fc from "fast-check"
import { patched, refusal, unmatched, value } from "./support.ts"

const file = `<?xml version="1.0" encoding="UTF-8"?>
<!-- head -->
<server id="1">
  <net>
    <port>1</port> <!-- the port -->
  </net>
  <world>a</world>
  <world>b</world>
</server>
`

describe("Config parsers: xml", () => {
  it("texts and attributes are replaced; declaration, comments and layout are kept", () => {
    assert.strictEqual(
      patched("xml", file, { "server.net.port": 2, "server.@id": "x", "server.world.1": "c" }),
      file.replace(">1<", ">2<").replace('id="1"', 'id="x"').replace(">b<", ">c<")
    )
  })

  it("every line that no patch changes stays byte for byte", () => {
    const days = [
      "<?xml version='1.0'?>",
      "<!-- GENERAL -->",
      "<ServerSettings\t>",
      '\t<property name="ServerName"\t\t\tvalue="My &#71;ame > Host"/>\t\t\t<!-- name -->',
      "\t<property name=\"ServerPort\"   value='26900' />",
      '\t<property\t\tname="Multiline"',
      "\t\tvalue='x'></property >",
      "\t<text>a &gt; <![CDATA[b]]></text>",
      "</ServerSettings>"
    ]
    for (const end of ["\n", "\r\n"]) {
      const text = `\ufeff${days.join(end)}`
      assert.strictEqual(
        patched("xml", text, { "ServerSettings.property[@name='ServerPort'].value": 5 }),
        text.replace("'26900'", "'5'")
      )
      assert.strictEqual(
        patched("xml", text, { "ServerSettings.property[@name='Region'].@value": "a<b" }),
        text.replace("</text>", `</text>${end}\t<property name="Region" value="a&lt;b"/>`)
      )
    }
  })

  it("additions have the indentation of their neighbours", () => {
    assert.strictEqual(
      patched("xml", file, { server: { net: { host: { ip: "::", "@v": 6 } } }, "server.world.2": "c" }),
      file
        .replace("</port>", '</port>\n    <host v="6">\n      <ip>::</ip>\n    </host>')
        .replace("<world>b</world>", "<world>b</world>\n  <world>c</world>")
    )
  })

  it("a name without an index matches every element of that name; `*` matches every element", () => {
    assert.strictEqual(patched("xml", "<a><b/><b>1</b><c/></a>", { "a.b": 2 }), "<a><b>2</b><b>2</b><c/></a>")
    assert.strictEqual(patched("xml", "<a><b/><c/></a>", { "a.*.@x": 1 }), '<a><b x="1"/><c x="1"/></a>')
  })

  it("conditions in brackets select elements, as in files for Pterodactyl", () => {
    const days = `<ServerSettings>
  <property name="ServerPort" value="26900"/>
  <property name="Server.Name" value="x"/>
  <group name="a"><port>1</port></group>
  <group><name>b</name><port>1</port></group>
</ServerSettings>
`
    assert.strictEqual(
      patched("xml", days, {
        "ServerSettings.property[@name='ServerPort']": "[value='26950']",
        "ServerSettings.property[name='Server.Name'].value": "My server",
        "ServerSettings.group[name='a'].port": 2,
        "ServerSettings.group[name='b'].port": 3,
        "ServerSettings.group[@id='c'].port": 4,
        "ServerSettings.property[@name='Region'].@value": "Europe"
      }),
      days
        .replace("26900", "26950")
        .replace('"x"', '"My server"')
        .replace("<port>1", "<port>2")
        .replace("<port>1", "<port>3")
        .replace(
          "</group>\n</",
          '</group>\n  <group id="c">\n    <port>4</port>\n  </group>\n  <property name="Region" value="Europe"/>\n</'
        )
    )
    assert.strictEqual(
      patched("xml", "<a><b>1</b><b>2</b></a>", { "a.b[2]": 3, "a.*[1].@x": 4 }),
      '<a><b x="4">1</b><b>3</b></a>'
    )
    assert.match(refusal("xml", "<a/>", { "a.b[0]": 1 }), /no condition/)
    assert.match(refusal("xml", "<a/>", { "a.b[x]": 1 }), /no condition/)
  })

  it("a value `[attr='text']` sets an attribute", () => {
    assert.strictEqual(
      patched("xml", "<a><b>t</b></a>", { "a.b": "[v='it''s']" }),
      `<a><b v="it''s">t</b></a>`
    )
    assert.strictEqual(patched("xml", "<a/>", { "a.@b": "[v='x']" }), `<a b="[v='x']"/>`)
  })

  it("a key without a match is returned with the reason", () => {
    const find = { "a.b[@x='1'].*.c": 1, "a.b[3]": 2, "a.*[@y='2']": 3, "a.b[@z]": 4, "a.c": 5 }
    assert.deepStrictEqual(
      unmatched("xml", "<a><b/></a>", find),
      ["a.b[@x='1'].*.c", "a.b[3]", "a.*[@y='2']", "a.b[@z]"].map((key) => ({
        key,
        reason: "no element fits"
      }))
    )
  })

  it("a list makes one element per item", () => {
    assert.strictEqual(
      patched("xml", file, { "server.world": ["x"] }),
      file.replace("\n  <world>b</world>", "").replace(">a<", ">x<")
    )
    assert.strictEqual(patched("xml", "<a/>", { a: { b: [1, { c: 2 }] } }), "<a><b>1</b><b><c>2</c></b></a>")
  })

  it("existing names with dots have precedence over splitting", () => {
    assert.strictEqual(patched("xml", "<a><b.c>1</b.c></a>", { "a.b.c": 2 }), "<a><b.c>2</b.c></a>")
  })

  it("a missing file is created", () => {
    assert.strictEqual(
      patched("xml", undefined, { "a.b.c": "<&>", "a.@d": '"' }),
      '<?xml version="1.0" encoding="UTF-8"?>\n<a d="&quot;">\n  <b>\n    <c>&lt;&amp;&gt;</c>\n  </b>\n</a>\n'
    )
  })

  it("an element with elements may have an empty text, and no other", () => {
    const find = { "server.net": "", "server.net.port": 2 }
    assert.strictEqual(patched("xml", file, find), file.replace(">1<", ">2<"))
    assert.include(refusal("xml", file, { "server.net": "x" }), "has elements, not a text")
  })

  it("CRLF and a byte order mark are kept; a file that is already right is unchanged", () => {
    assert.strictEqual(
      patched("xml", "\ufeff<a>\r\n  <b />\r\n</a>\r\n", { "a.c": 1 }),
      "\ufeff<a>\r\n  <b />\r\n  <c>1</c>\r\n</a>\r\n"
    )
    assert.strictEqual(
      patched("xml", "<a  x = '1' ><b ></b></a>", { "a.@x": 1, "a.b": "" }),
      "<a  x = '1' ><b ></b></a>"
    )
  })

  it("new elements have the namespace of their parent", () => {
    assert.strictEqual(
      patched("xml", '<a xmlns="u" xmlns:p="v"/>', { "a.b": 1, "a.p:c": 2, "a.@p:d": 3 }),
      '<a xmlns="u" xmlns:p="v" p:d="3"><b>1</b><p:c>2</p:c></a>'
    )
    assert.match(refusal("xml", "<a/>", { "a.q:b": 1 }), /no namespace/)
  })

  it("document types are refused, so that entities neither expand nor read files", () => {
    const bomb =
      '<?xml version="1.0"?><!-- x --><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'
    assert.match(refusal("xml", bomb, { "a.c": 1 }), /document type/)
  })

  it("broken files and values that XML cannot hold are refused", () => {
    for (const broken of ["<a><b></a>", "<a>&b;</a>", "<a/><b/>", "text", "<a x=1/>", "<a", "<a/>x"]) {
      assert.match(refusal("xml", broken, { "a.c": 1 }), /not valid XML/)
    }
    assert.match(refusal("xml", "<a/>", { "b.c": 1 }), /root element, <a>/)
    assert.match(refusal("xml", "<a/>", { "a.1x": 1 }), /no name of an element/)
    assert.match(refusal("xml", "<a/>", { "a.b": "\u0000" }), /cannot hold/)
    assert.match(refusal("xml", "<a><b><c/></b></a>", { "a.b": "text" }), /not a text/)
    assert.match(
      refusal("xml", '<?xml version="1.0" encoding="ISO-8859-1"?><a/>', { "a.b": "é" }),
      /encoding/
    )
    assert.match(refusal("xml", "<a/>", { "a.b.3": 1 }), /only 0 elements/)
    assert.match(refusal("xml", undefined, { a: "yes", "a.b": 1 }), /<a> has a text, not elements/)
  })

  const name = fc.constantFrom("b", "c", "d", "e")
  const text = value.filter((one) => !/[\p{Cc}\ufffe\uffff]/u.test(one.replace(/[\t\n]/g, "")))

  it("for any values, they are set and all other elements are unchanged", () => {
    fc.assert(
      fc.property(
        fc.dictionary(name, text),
        fc.dictionary(name, text),
        fc.dictionary(name, text),
        fc.boolean(),
        (old, find, attributes, pretty) => {
          const gap = pretty ? "\n  " : ""
          const escape = (raw: string) => raw.replaceAll("&", "&amp;").replaceAll("<", "&lt;")
          const before = `<!-- head --><a>${Object.entries(old)
            .map(([tag, raw]) => `${gap}<${tag}>${escape(raw)}</${tag}>`)
            .join("")}</a>`
          const result = patched("xml", before, {
            a: {
              ...find,
              ...Object.fromEntries(Object.entries(attributes).map(([key, raw]) => [`@${key}`, raw]))
            }
          })
          const doc = new DOMParser({
            // A warning: U+FFFD, which is valid.
            onError: (level, message) => (level === "warning" ? undefined : assert.fail(message)),
            normalizeLineEndings: (raw) => raw
          }).parseFromString(result, "text/xml")
          for (const [tag, raw] of Object.entries({ ...old, ...find })) {
            assert.strictEqual(doc.getElementsByTagName(tag)[0]?.textContent, raw)
          }
          for (const [key, raw] of Object.entries(attributes)) {
            assert.strictEqual(doc.documentElement?.getAttribute(key), raw)
          }
          assert.isTrue(result.startsWith("<!-- head -->"))
        }
      ),
      { numRuns: 200, examples: [[{ b: "\ufffd" }, {}, {}, false]] }
    )
  })
})

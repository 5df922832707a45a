/** The text of a patched XML document: every part that did not change is printed as it stands in the file. */
import type { Document, Element, Node } from "@xmldom/xmldom"
import { lineEndOf } from "./text.ts"
import { childrenOf, isElement } from "./xmlTree.ts"

const tokens =
  /<!--[\s\S]*?-->|<!\[CDATA\[[\s\S]*?\]\]>|<\?[\s\S]*?\?>|<\/[^>]*>|<(?:"[^"]*"|'[^']*'|[^<>"'])*>|[^<]+/g
const attribute = /([^\s=<>"'/]+)\s*=\s*(?:"[^"]*"|'[^']*')/g

/** How a token of each type of node begins. */
const beginnings: Readonly<Record<number, RegExp>> = {
  1: /^<[^!?/]/,
  3: /^[^<]/,
  4: /^<!\[CDATA\[/,
  7: /^<\?/,
  8: /^<!--/
}

interface Written {
  /** A text or comment, or the tag that begins an element. */
  readonly text: string
  /** The tag that ends an element; empty: it has none. */
  readonly end: string
  readonly attributes: ReadonlyMap<string, string>
  readonly filled: boolean
}

const attributesOf = (element: Element): ReadonlyArray<readonly [string, string]> =>
  [...element.attributes].map(({ name, value }) => [name, value] as const)

const references: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;"
}

const escaped = (text: string, characters = /[&<>\r]/g): string =>
  text.replace(characters, (char) => references[char] ?? `&#${char.charCodeAt(0)};`)

const quoted = (text: string, quote = '"'): string =>
  quote + escaped(text, quote === '"' ? /[&<>\r\t\n"]/g : /[&<>\r\t\n']/g) + quote

/** Returns a printer of the changed document; undefined if the text cannot be divided into the document's nodes. */
export const printerOf = (source: string, doc: Document): (() => string) | undefined => {
  const root = doc.documentElement
  const parts = source.match(tokens) ?? []
  let at = parts.findIndex((part) => /^<[^!?/]/.test(part))
  if (root === null || at < 0 || parts.join("") !== source) return undefined
  const before = parts.slice(0, at).join("")
  const written = new Map<Node, Written>()
  const line = lineEndOf(source)

  const read = (node: Node): boolean => {
    const text = parts[at++] ?? ""
    if (beginnings[node.nodeType]?.test(text) !== true) return false
    const inner = childrenOf(node)
    const closed = !isElement(node) || text.endsWith("/>")
    if (!inner.every(read)) return false
    const end = closed ? "" : (parts[at++] ?? "")
    if (!closed && !end.startsWith("</")) return false
    const attributes = new Map(isElement(node) ? attributesOf(node) : [])
    written.set(node, { text, end, attributes, filled: inner.length > 0 })
    return true
  }
  if (!read(root)) return undefined
  const after = parts.slice(at).join("")

  /** Returns the tag that begins an element, with its new values. */
  const beginOf = (element: Element, old: Written | undefined): string => {
    let tag = old?.text ?? `<${element.nodeName}>`
    for (const [name, value] of attributesOf(element)) {
      if (old?.attributes.get(name) === value) continue
      const text = `${name}=${quoted(value)}`
      tag = old?.attributes.has(name)
        ? tag.replace(attribute, (whole, found: string) =>
            found === name
              ? whole.replace(/(["'])[\s\S]*$/, (_, quote: string) => quoted(value, quote))
              : whole
          )
        : tag.replace(/\s*\/?>$/, (end) => ` ${text}${end}`)
    }
    return tag
  }

  const print = (node: Node): string => {
    const old = written.get(node)
    if (!isElement(node)) return old?.text ?? escaped(node.nodeValue ?? "").replaceAll("\n", line)
    const tag = beginOf(node, old)
    const inner = childrenOf(node).map(print).join("")
    if (inner === "" && old?.filled !== false) return tag.replace(/\s*>$/, "/>")
    if (inner === "" || old?.end) return tag + inner + (old?.end ?? "")
    return `${tag.replace(/\s*\/?>$/, ">")}${inner}</${node.nodeName}>`
  }
  return () => before + print(root) + after
}

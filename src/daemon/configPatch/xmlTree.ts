/** Elements, texts, attributes and keys of XML documents. New elements get the indentation of their neighbours. */
import type { Document, Element, Node } from "@xmldom/xmldom"
import { Result } from "effect"
import { cut, type PatchProblem, problem, shown } from "./find.ts"
import { lineEndOf } from "./text.ts"

const ELEMENT = 1
const TEXT = 3
const CDATA = 4

const xmlName = /^[\p{L}_][\p{L}\p{N}_.\-\u00b7]*(?::[\p{L}_][\p{L}\p{N}_.\-\u00b7]*)?$/u

/** Returns whether `text` can be the name of an element or attribute; namespace declarations cannot be patched. */
export const isXmlName = (text: string): boolean => xmlName.test(text) && !/^xmlns(?:$|:)/.test(text)

/** Returns whether XML can hold the text without change. */
export const isXmlText = (text: string): boolean =>
  !/[\p{Cc}\p{Cs}\ufffe\uffff]/u.test(text.replace(/[\t\n]/g, ""))

export const isElement = (node: Node): node is Element => node.nodeType === ELEMENT
const isText = (node: Node): boolean => node.nodeType === TEXT || node.nodeType === CDATA

export const childrenOf = (node: Node): ReadonlyArray<Node> => {
  const all: Array<Node> = []
  for (let child = node.firstChild; child !== null; child = child.nextSibling) all.push(child)
  return all
}

export const elementsOf = (node: Node): ReadonlyArray<Element> => childrenOf(node).filter(isElement)

const isBlank = (node: Node | null): node is Node =>
  node !== null && node.nodeType === TEXT && (node.nodeValue ?? "").trim() === ""

/** Returns the line break and indentation before an element, if it begins a line. */
const breakBefore = (element: Element): string | undefined => {
  const before = element.previousSibling
  const text = isBlank(before) ? (before.nodeValue ?? "") : ""
  const at = text.lastIndexOf("\n")
  return at < 0 ? undefined : text.slice(at)
}

/** Returns one level of indentation, as of the root's first child. */
const indentOf = (root: Element | null): string => {
  const first = root === null ? undefined : elementsOf(root)[0]
  const found = first === undefined ? undefined : breakBefore(first)?.slice(1)
  return found === undefined || found === "" ? "  " : found
}

/** Adds an element at the end of `parent`, unless its prefix has no namespace. */
export const addElement = (
  doc: Document,
  parent: Element,
  name: string,
  pretty: boolean
): Element | undefined => {
  const prefix = name.includes(":") ? name.slice(0, name.indexOf(":")) : null
  const namespace = parent.lookupNamespaceURI(prefix)
  if (prefix !== null && namespace === null) return undefined
  const element = doc.createElementNS(namespace, name)
  const last = elementsOf(parent).at(-1)
  if (last !== undefined) {
    const line = breakBefore(last)
    const after = last.nextSibling
    if (line !== undefined) parent.insertBefore(doc.createTextNode(line), after)
    parent.insertBefore(element, after)
    return element
  }
  const isRoot = parent === doc.documentElement
  const line = isRoot ? (pretty ? "\n" : undefined) : breakBefore(parent)
  const children = childrenOf(parent)
  if (line === undefined || children.some((child) => isText(child) && !isBlank(child))) {
    parent.appendChild(element)
    return element
  }
  const step = indentOf(doc.documentElement)
  const final = children.at(-1) ?? null
  if (isBlank(final)) parent.removeChild(final)
  parent.appendChild(doc.createTextNode(line + step))
  parent.appendChild(element)
  parent.appendChild(doc.createTextNode(line))
  return element
}

export const removeElement = (parent: Element, element: Element): void => {
  const before = element.previousSibling
  if (isBlank(before)) parent.removeChild(before)
  parent.removeChild(element)
}

/** Returns the element's own text, without comments. */
export const textOf = (element: Element): string =>
  childrenOf(element)
    .filter(isText)
    .map((node) => node.nodeValue ?? "")
    .join("")

/** Replaces the element's own text at its first place; comments stay. */
export const setText = (doc: Document, element: Element, text: string): void => {
  const old = childrenOf(element).filter(isText)
  const place = old[0] ?? null
  if (text !== "") element.insertBefore(doc.createTextNode(text), place)
  for (const node of old) element.removeChild(node)
}

export const setAttribute = (element: Element, name: string, value: string): boolean => {
  const prefix = name.includes(":") ? name.slice(0, name.indexOf(":")) : undefined
  const namespace = prefix === undefined ? null : element.lookupNamespaceURI(prefix)
  if (prefix === undefined) element.setAttribute(name, value)
  else if (namespace === null) return false
  else element.setAttributeNS(namespace, name, value)
  return true
}

/** A condition in brackets on an element: an attribute or the text of an element in it, or a place among its equals. */
type Condition =
  | { readonly attribute: string; readonly only: boolean; readonly value: string | undefined }
  | { readonly place: number }

export interface Step {
  readonly name: string
  readonly conditions: ReadonlyArray<Condition>
}

const brackets = /\[(?:"[^"]*"|'[^']*'|[^\]"'])*\]/
const stepKey = new RegExp(`^([^[\\]]+)((?:${brackets.source})+)$`, "s")
const condition = /^\[(?:(@?)([^\s@='"[\]]+)=(?:'([^']*)'|"([^"]*)")|@([^\s@='"[\]]+)|([1-9]\d{0,8}))\]$/s
/** Reads a name and its conditions, as in `property[@name='x']`. */
export const stepOf = (part: string): Result.Result<Step, PatchProblem> => {
  const [, name = part, written = ""] = stepKey.exec(part) ?? []
  const conditions: Array<Condition> = []
  for (const [text] of written.matchAll(new RegExp(brackets, "gs"))) {
    const [whole, at, equal, single, double, present, place] = condition.exec(text) ?? []
    if (whole === undefined) {
      return problem(`${shown(text)} is no condition; write [@name='value'] or a place from [1]`)
    }
    conditions.push(
      place === undefined
        ? { attribute: equal ?? present ?? "", only: at !== "", value: single ?? double }
        : { place: Number(place) }
    )
  }
  return Result.succeed({ name, conditions })
}

const textsOf = (element: Element, name: string): ReadonlyArray<string> =>
  elementsOf(element)
    .filter((child) => child.nodeName === name)
    .map(textOf)

/** Returns the elements of this name that meet the conditions; each condition filters the rest of the one before. */
export const chosenBy = (
  { name, conditions }: Step,
  elements: ReadonlyArray<Element>
): ReadonlyArray<Element> =>
  conditions.reduce<ReadonlyArray<Element>>(
    (left, rule) => {
      if ("place" in rule) return left.slice(rule.place - 1, rule.place)
      const { attribute, only, value } = rule
      return left.filter((element) =>
        value === undefined
          ? element.hasAttribute(attribute)
          : element.getAttribute(attribute) === value ||
            (!only && textsOf(element, attribute).includes(value))
      )
    },
    elements.filter((element) => name === "*" || element.nodeName === name)
  )

export const divide = (key: string): readonly [string, string | undefined] => {
  const [first = key] = new RegExp(`^(?:${brackets.source}|[^.])*`, "s").exec(key) ?? []
  return cut(key, first.length < key.length ? first.length : -1)
}

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
  /** The tag that ends an element, or empty. */
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

/** Returns a printer of the changed document, if the text can be divided into the document's nodes. */
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

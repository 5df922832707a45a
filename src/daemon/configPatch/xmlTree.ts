/** The elements of an XML file, each with the text of its tags: what no patch changes prints as it stands in the file. */

export interface XmlElement {
  readonly name: string
  /** Unset for the document, whose content is the root element and what is beside it. */
  readonly parent: XmlElement | undefined
  /** The tag that begins it, with the attributes. */
  tag: string
  /** Elements, and all else as it stands in the file: texts, comments, instructions. */
  content: Array<string | XmlElement>
  /** The tag that ends it; empty for `<name/>`. */
  end: string
}

const xmlName = /^[\p{L}_][\p{L}\p{N}_.\-\u00b7]*(?::[\p{L}_][\p{L}\p{N}_.\-\u00b7]*)?$/u

/** Returns whether `text` can be the name of an element or attribute; namespace declarations cannot be patched. */
export const isXmlName = (text: string): boolean => xmlName.test(text) && !/^xmlns(?:$|:)/.test(text)

/** Returns whether XML can hold the text without change. */
export const isXmlText = (text: string): boolean =>
  !/[\p{Cc}\p{Cs}\ufffe\uffff]/u.test(text.replace(/[\t\n]/g, ""))

const tokens =
  /<!--[\s\S]*?-->|<!\[CDATA\[[\s\S]*?\]\]>|<\?[\s\S]*?\?>|<\/[^>]*>|<(?:"[^"]*"|'[^']*'|[^<>"'])*>|[^<]+/g
const attribute = /([^\s=<>"'/]+)(\s*=\s*)("[^"]*"|'[^']*')/g

/** Divides a text that is valid XML. */
export const readDocument = (source: string): XmlElement => {
  const made: XmlElement = { name: "", parent: undefined, tag: "", content: [], end: "" }
  let open = made
  for (const part of source.match(tokens) ?? []) {
    if (part.startsWith("</")) {
      open.end = part
      open = open.parent ?? made
    } else if (/^<[^!?]/.test(part)) {
      const name = /^<([^\s/>]+)/.exec(part)?.[1] ?? ""
      const element: XmlElement = { name, parent: open, tag: part, content: [], end: "" }
      open.content.push(element)
      if (!part.endsWith("/>")) open = element
    } else open.content.push(part)
  }
  return made
}

export const printed = ({ tag, content, end }: XmlElement): string =>
  tag + content.map((part) => (typeof part === "string" ? part : printed(part))).join("") + end

type Part = string | XmlElement

const isElement = (part: Part): part is XmlElement => typeof part !== "string"
const isText = (part: Part): part is string =>
  typeof part === "string" && (!part.startsWith("<") || part.startsWith("<![CDATA["))
const isBlank = (part: Part | undefined): part is string => typeof part === "string" && part.trim() === ""

export const elementsOf = ({ content }: XmlElement): ReadonlyArray<XmlElement> => content.filter(isElement)

const characters = new Map([
  ["amp", "&"],
  ["lt", "<"],
  ["gt", ">"],
  ["quot", '"'],
  ["apos", "'"]
])

const decoded = (text: string): string =>
  text.replace(/&(?:#x([\da-f]+)|#(\d+)|(\w+));/gi, (_, hex?: string, digits?: string, name = "") => {
    if (hex === undefined && digits === undefined) return characters.get(name) ?? ""
    return String.fromCodePoint(hex === undefined ? Number(digits) : Number.parseInt(hex, 16))
  })

const escaped = (text: string, pattern = /[&<>\r]/g): string =>
  text.replace(pattern, (char) => {
    const [name] = [...characters].find(([, each]) => each === char) ?? []
    return `&${name ?? `#${char.charCodeAt(0)}`};`
  })

/** Returns the element's own text, without comments. */
export const textOf = ({ content }: XmlElement): string =>
  content
    .filter(isText)
    .map((part) => part.replace(/\r\n?/g, "\n"))
    .map((part) => (part.startsWith("<![CDATA[") ? part.slice(9, -3) : decoded(part)))
    .join("")

/** Gives `<name/>` a tag that ends it. */
const divideTag = (element: XmlElement): void => {
  if (element.end !== "") return
  element.tag = element.tag.replace(/\s*\/>$/, ">")
  element.end = `</${element.name}>`
}

/** Replaces the element's own text at its first place; comments stay. @param line the line end of the file */
export const setText = (element: XmlElement, text: string, line: string): void => {
  const at = element.content.findIndex(isText)
  element.content = element.content.filter((part) => !isText(part))
  if (text === "") return
  divideTag(element)
  element.content.splice(at < 0 ? element.content.length : at, 0, escaped(text).replaceAll("\n", line))
}

/** Returns the value of an attribute, unless the element has none of this name. */
export const attributeOf = ({ tag }: XmlElement, name: string): string | undefined => {
  const found = [...tag.matchAll(attribute)].find(([, each]) => each === name)
  return found?.[3] === undefined ? undefined : decoded(found[3].slice(1, -1).replace(/\r\n|[\t\n\r]/g, " "))
}

export const setAttribute = (element: XmlElement, name: string, value: string): void => {
  const quoted = (quote: string) =>
    quote + escaped(value, quote === "'" ? /[&<>\r\t\n']/g : /[&<>\r\t\n"]/g) + quote
  element.tag =
    attributeOf(element, name) === undefined
      ? element.tag.replace(/\s*\/?>$/, (end) => ` ${name}=${quoted('"')}${end}`)
      : element.tag.replace(attribute, (whole, each: string, equal: string, old: string) =>
          each === name ? each + equal + quoted(old.charAt(0)) : whole
        )
}

/** Returns whether the prefix of a name, if it has one, stands for a namespace at this element. */
export const hasNamespace = (element: XmlElement, name: string): boolean => {
  const [prefix, local] = name.split(":")
  if (local === undefined || prefix === "xml") return true
  for (let at: XmlElement | undefined = element; at !== undefined; at = at.parent)
    if (attributeOf(at, `xmlns:${prefix}`) !== undefined) return true
  return false
}

/** Returns the line break and indentation before an element, if it begins a line. */
const breakBefore = (element: XmlElement | undefined): string | undefined => {
  const content = element?.parent?.content ?? []
  const before = element === undefined ? -1 : content.indexOf(element) - 1
  const text = content[before]
  return isBlank(text) ? /(?:\r\n|\r|\n)[^\r\n]*$/.exec(text)?.[0] : undefined
}

/** Adds an element at the end of `parent`, with the indentation of its neighbours. @param line a break below the root */
export const addElement = (parent: XmlElement, name: string, line: string | undefined): XmlElement => {
  const element: XmlElement = { name, parent, tag: `<${name}/>`, content: [], end: "" }
  const { content } = parent
  const last = elementsOf(parent).at(-1)
  divideTag(parent)
  if (last !== undefined) {
    const before = breakBefore(last)
    content.splice(content.indexOf(last) + 1, 0, ...(before === undefined ? [] : [before]), element)
    return element
  }
  let root = parent
  while (root.parent?.parent !== undefined) root = root.parent
  const outer = parent === root ? line : breakBefore(parent)
  if (outer === undefined) content.push(element)
  else {
    const indent = breakBefore(elementsOf(root)[0])?.replace(/^[\r\n]+/, "") || "  "
    if (isBlank(content.at(-1))) content.pop()
    content.push(outer + indent, element, outer)
  }
  return element
}

export const removeElement = ({ content }: XmlElement, element: XmlElement): void => {
  const at = content.indexOf(element)
  const isIndented = isBlank(content[at - 1])
  content.splice(isIndented ? at - 1 : at, isIndented ? 2 : 1)
}

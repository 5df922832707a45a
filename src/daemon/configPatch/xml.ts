import { DOMParser, type Document, type Element, XMLSerializer } from "@xmldom/xmldom"
import { Result, type Schema } from "effect"
import {
  cut,
  type Find,
  firstProblem,
  flatText,
  isJsonList,
  isJsonMap,
  type Patcher,
  PatchProblem,
  problem,
  shown,
  type Unmatched
} from "./find.ts"
import { lineEndOf } from "./text.ts"
import {
  addElement,
  chosenBy,
  divide,
  elementsOf,
  isXmlName,
  isXmlText,
  printerOf,
  removeElement,
  type Step,
  setAttribute,
  setText,
  stepOf,
  textOf
} from "./xmlTree.ts"

type Outcome = PatchProblem | undefined

const refuse = (reason: string): PatchProblem => new PatchProblem({ reason })

/** Returns whether the text has a document type: entities are never read, so that they cannot expand without bound. */
const hasDoctype = (text: string): boolean => {
  let at = 0
  for (;;) {
    at += text.slice(at).search(/\S|$/)
    const close = text.startsWith("<?", at) ? "?>" : text.startsWith("<!--", at) ? "-->" : undefined
    if (close === undefined) return text.startsWith("<!", at)
    const end = text.indexOf(close, at)
    if (end < 0) return false
    at = end + close.length
  }
}

const read = (text: string): Result.Result<Document, PatchProblem> => {
  if (hasDoctype(text)) return problem("it has a document type (<!DOCTYPE>), which is refused")
  let first: string | undefined
  const parser = new DOMParser({
    locator: false,
    // XML 1.0: the default replaces other characters by line ends, too
    normalizeLineEndings: (raw) => raw.replace(/\r\n?/g, "\n"),
    onError: (level, message) => {
      // The character is valid, and servers write it for bytes that they cannot decode.
      if (level === "warning" && message.startsWith("Unicode replacement character")) return
      first ??= message
    }
  })
  const parsed = Result.try(() => parser.parseFromString(text, "text/xml"))
  if (Result.isSuccess(parsed) && first === undefined) return Result.succeed(parsed.success)
  if (Result.isFailure(parsed)) first ??= String(parsed.failure)
  return problem(`it is not valid XML: ${(first ?? "").replace(/\s+/g, " ").slice(0, 200)}`)
}

/** A value in Pterodactyl's eggs that sets an attribute. */
const attributeValue = /^\[([\w:.-]+)='(.*)'\]$/s

const patcher = (doc: Document, pretty: boolean) => {
  let changed = false
  let reached = 0
  const unmatched: Array<Unmatched> = []

  const write = (element: Element, key: string, value: Schema.Json): Outcome => {
    reached++
    const inline = key.startsWith("@") || typeof value !== "string" ? null : attributeValue.exec(value)
    if (inline !== null) return write(element, `@${inline[1]}`, inline[2] ?? "")
    if (isJsonList(value) || isJsonMap(value))
      return refuse(`the key ${shown(key)} cannot hold a list or a map`)
    const old = key.startsWith("@") ? element.getAttribute(key.slice(1)) : textOf(element)
    const text = flatText(value, old ?? "")
    if (!isXmlText(text)) return refuse(`the value of ${shown(key)} has characters that XML cannot hold`)
    if (!key.startsWith("@")) {
      if (elementsOf(element).length > 0)
        return refuse(`the element <${element.nodeName}> has elements, not a text`)
      if (old === text) return undefined
      setText(doc, element, text)
    } else {
      const name = key.slice(1)
      if (!isXmlName(name)) return refuse(`${shown(key)} is no name of an attribute`)
      if (old === text) return undefined
      if (!setAttribute(element, name, text))
        return refuse(`the prefix of ${shown(key)} stands for no namespace`)
    }
    changed = true
    return undefined
  }

  const add = (parent: Element, name: string): Result.Result<Element, PatchProblem> => {
    if (!isXmlName(name)) return problem(`${shown(name)} is no name of an element`)
    if (textOf(parent).trim() !== "")
      return problem(`the element <${parent.nodeName}> has a text, not elements`)
    const element = addElement(doc, parent, name, pretty)
    if (element === undefined) return problem(`the prefix of ${shown(name)} stands for no namespace`)
    changed = true
    return Result.succeed(element)
  }

  const assign = (element: Element, value: Schema.Json): Outcome =>
    isJsonMap(value) ? merge(element, value) : write(element, element.nodeName, value)

  const assignList = (parent: Element, name: string, items: ReadonlyArray<Schema.Json>): Outcome => {
    reached++
    const present = elementsOf(parent).filter((element) => element.nodeName === name)
    for (const surplus of present.slice(items.length)) {
      removeElement(parent, surplus)
      changed = true
    }
    return firstProblem(items.entries(), ([n, item]) => {
      const known = present[n]
      const element = known === undefined ? add(parent, name) : Result.succeed(known)
      return Result.isFailure(element) ? element.failure : assign(element.success, item)
    })
  }

  const each = (
    elements: ReadonlyArray<Element>,
    rest: string | undefined,
    value: Schema.Json,
    conditioned = false
  ): Outcome =>
    firstProblem(elements, (element) => {
      if (rest === undefined) return assign(element, value)
      const attribute =
        conditioned &&
        element.hasAttribute(rest) &&
        !elementsOf(element).some((child) => child.nodeName === rest)
      return apply(element, attribute ? `@${rest}` : rest, value)
    })

  /** Sets the elements `name` of `parent`: all of them, or the one at the number that `rest` begins with. */
  const visit = (parent: Element, name: string, rest: string | undefined, value: Schema.Json): Outcome => {
    const present = elementsOf(parent).filter((element) => element.nodeName === name)
    if (rest === undefined && isJsonList(value)) return assignList(parent, name, value)
    const counted = rest === undefined ? null : /^(0|[1-9]\d{0,8})(?:\.|$)/.exec(rest)
    const index = Number(counted?.[1] ?? 0)
    if (index > present.length) return refuse(`there are only ${present.length} elements <${name}>`)
    const behind = counted === null ? rest : rest?.slice(counted[0].length) || undefined
    const chosen = counted === null ? present : present.slice(index, index + 1)
    if (chosen.length > 0) return each(chosen, behind, value)
    if (behind?.split(".").includes("*")) return undefined
    const added = add(parent, name)
    return Result.isFailure(added) ? added.failure : each([added.success], behind, value)
  }

  /** Sets the elements that meet the conditions of `step`; if there is none, one with these attributes is added. */
  const select = (parent: Element, step: Step, rest: string | undefined, value: Schema.Json): Outcome => {
    const chosen = chosenBy(step, elementsOf(parent))
    if (chosen.length > 0) return each(chosen, rest, value, true)
    if (step.name === "*" || rest?.split(".").includes("*")) return undefined
    const attributes = step.conditions.flatMap((rule) =>
      "value" in rule && rule.value !== undefined ? [[rule.attribute, rule.value] as const] : []
    )
    if (attributes.length < step.conditions.length) return undefined
    const added = add(parent, step.name)
    if (Result.isFailure(added)) return added.failure
    const failed = firstProblem(attributes, ([name, text]) => write(added.success, `@${name}`, text))
    return failed ?? each([added.success], rest, value, true)
  }

  const apply = (parent: Element, key: string, value: Schema.Json): Outcome => {
    if (key.startsWith("@")) return write(parent, key, value)
    const names = new Set(elementsOf(parent).map((element) => element.nodeName))
    if (names.has(key)) return visit(parent, key, undefined, value)
    const [head, rest] = divide(key)
    const step = stepOf(head)
    if (Result.isFailure(step)) return step.failure
    if (step.success.conditions.length > 0) return select(parent, step.success, rest, value)
    for (let dot = key.lastIndexOf("."); dot > 0; dot = key.lastIndexOf(".", dot - 1)) {
      const [start, behind] = cut(key, dot)
      if (names.has(start)) return visit(parent, start, behind, value)
    }
    return head === "*" ? each(elementsOf(parent), rest, value) : visit(parent, head, rest, value)
  }

  const noting = (key: string, change: () => Outcome): Outcome => {
    const before = reached + unmatched.length
    const failed = change()
    if (reached + unmatched.length === before) unmatched.push({ key, reason: "no element fits" })
    return failed
  }

  const merge = (element: Element, values: Find): Outcome => {
    if (Object.keys(values).length === 0) reached++
    return firstProblem(Object.entries(values), ([key, value]) =>
      noting(key, () => apply(element, key, value))
    )
  }

  /** The first part of a key names the root element, of which there is one. */
  const applyRoot = (root: Element, key: string, value: Schema.Json): Outcome => {
    if (key === root.nodeName) return assign(root, value)
    const [head, rest] = key.startsWith(`${root.nodeName}.`) ? cut(key, root.nodeName.length) : divide(key)
    const step = stepOf(head)
    if (Result.isFailure(step)) return step.failure
    if (step.success.name !== "*" && step.success.name !== root.nodeName) {
      return refuse(`the key ${shown(key)} does not begin with the root element, <${root.nodeName}>`)
    }
    return each(chosenBy(step.success, [root]), rest, value, step.success.conditions.length > 0)
  }

  const patch = (root: Element, key: string, value: Schema.Json) =>
    noting(key, () => applyRoot(root, key, value))

  return { patch, changed: () => changed, unmatched }
}

const declaredEncoding = (text: string): string =>
  /^<\?xml\s[^>]*?encoding\s*=\s*["']([^"']*)["']/.exec(text)?.[1]?.toLowerCase() ?? "utf-8"

const serialized = (doc: Document): string => new XMLSerializer().serializeToString(doc).trimEnd()

/** @param inPlace prints what did not change as it stands in the file, see {@link printerOf} */
const print = (
  source: string,
  doc: Document,
  inPlace: (() => string) | undefined
): Result.Result<string, PatchProblem> => {
  const body = serialized(doc)
  const edited = inPlace?.()
  const again = edited === undefined ? undefined : Result.getOrUndefined(read(edited))
  // the parser replaces every line end by \n: a remaining carriage return was a character reference
  const trail = source.slice(source.trimEnd().length).replace(/\r\n?/g, "\n")
  const text =
    edited !== undefined && again !== undefined && serialized(again) === body
      ? edited
      : (body.replaceAll("\r", "&#13;") + trail).replaceAll("\n", lineEndOf(source))
  const encoding = declaredEncoding(text)
  if (!["utf-8", "utf8", "us-ascii", "ascii"].includes(encoding) && /[^\p{ASCII}]/u.test(text)) {
    return problem(`its encoding is ${shown(encoding)}, only UTF-8 is written`)
  }
  return Result.map(read(text), () => text)
}

const fresh = (find: Find): Result.Result<string, PatchProblem> => {
  const key = Object.keys(find)[0] ?? ""
  const name = divide(key)[0].replace(/\[.*$/s, "")
  return isXmlName(name)
    ? Result.succeed(`<?xml version="1.0" encoding="UTF-8"?>\n<${name}/>\n`)
    : problem(`${shown(name)} is no name of a root element`)
}

/**
 * Patches an XML file. A key begins with the root element: `server.network.port` is the text of `<port>`, `server.@id`
 * an attribute, `server.world.1.name` counts the elements `<world>` from 0; without a number all of them are set. As in
 * eggs of Pterodactyl, `server.property[@name='x']` are the elements with this attribute, and a value `[attr='text']`
 * sets an attribute. A list makes as many elements of that name and merges their contents. Comments, declaration and
 * white space stay. A document type is refused. An empty file counts as a missing one.
 */
export const patchXml: Patcher = (text, find) =>
  Result.gen(function* () {
    if (Object.keys(find).length === 0) return { text, unmatched: [] }
    const source = text === undefined || text.trim() === "" ? yield* fresh(find) : text
    const doc = yield* read(source)
    const root = doc.documentElement
    if (root === null) return yield* problem("it has no root element")
    const inPlace = printerOf(source, doc)
    const { patch, changed, unmatched } = patcher(doc, source !== text || /[\r\n]/.test(source.trim()))
    const failed = firstProblem(Object.entries(find), ([key, value]) => patch(root, key, value))
    if (failed !== undefined) return yield* Result.fail(failed)
    return { text: changed() ? yield* print(source, doc, inPlace) : source, unmatched }
  })

import { DOMParser } from "@xmldom/xmldom"
import { Result, type Schema } from "effect"
import {
  cut,
  type Find,
  firstProblem,
  flatText,
  isJsonList,
  isJsonMap,
  lineEndOf,
  type Patcher,
  PatchProblem,
  problem,
  shown,
  type Unmatched
} from "./find.ts"
import {
  addElement,
  attributeOf,
  elementsOf,
  hasNamespace,
  isXmlName,
  isXmlText,
  printed,
  readDocument,
  removeElement,
  setAttribute,
  setText,
  textOf,
  type XmlElement
} from "./xmlTree.ts"

type Outcome = PatchProblem | undefined

const refuse = (reason: string): PatchProblem => new PatchProblem({ reason })

const prolog = /\s+|<\?[\s\S]*?\?>|<!--[\s\S]*?-->/y

/** Returns whether the text has a document type: entities are never read, so that they cannot expand without bound. */
const hasDoctype = (text: string): boolean => {
  let at = 0
  for (prolog.lastIndex = 0; prolog.test(text); ) at = prolog.lastIndex
  return text.startsWith("<!", at)
}

const read = (text: string): Result.Result<XmlElement, PatchProblem> => {
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
  if (Result.isFailure(parsed)) first ??= String(parsed.failure)
  const made = readDocument(text)
  if (printed(made) !== text) first ??= "its tags cannot be told apart"
  return first === undefined
    ? Result.succeed(made)
    : problem(`it is not valid XML: ${first.replace(/\s+/g, " ").slice(0, 200)}`)
}

/** A condition in brackets on an element: an attribute or the text of an element in it, or a place among its equals. */
type Condition =
  | { readonly attribute: string; readonly only: boolean; readonly value: string | undefined }
  | { readonly place: number }

interface Step {
  readonly name: string
  readonly conditions: ReadonlyArray<Condition>
}

const brackets = /\[(?:"[^"]*"|'[^']*'|[^\]"'])*\]/
const stepKey = new RegExp(`^([^[\\]]+)((?:${brackets.source})+)$`, "s")
const condition = /^\[(?:(@?)([^\s@='"[\]]+)=(?:'([^']*)'|"([^"]*)")|@([^\s@='"[\]]+)|([1-9]\d{0,8}))\]$/s
/** Reads a name and its conditions, as in `property[@name='x']`. */
const stepOf = (part: string): Result.Result<Step, PatchProblem> => {
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

const textsOf = (element: XmlElement, name: string): ReadonlyArray<string> =>
  elementsOf(element)
    .filter((child) => child.name === name)
    .map(textOf)

/** Returns the elements of this name that meet the conditions; each condition filters the rest of the one before. */
const chosenBy = (
  { name, conditions }: Step,
  elements: ReadonlyArray<XmlElement>
): ReadonlyArray<XmlElement> =>
  conditions.reduce<ReadonlyArray<XmlElement>>(
    (left, rule) => {
      if ("place" in rule) return left.slice(rule.place - 1, rule.place)
      const { attribute, only, value } = rule
      return left.filter((element) =>
        value === undefined
          ? attributeOf(element, attribute) !== undefined
          : attributeOf(element, attribute) === value ||
            (!only && textsOf(element, attribute).includes(value))
      )
    },
    elements.filter((element) => name === "*" || element.name === name)
  )

const divide = (key: string): readonly [string, string | undefined] => {
  const [first = key] = new RegExp(`^(?:${brackets.source}|[^.])*`, "s").exec(key) ?? []
  return cut(key, first.length < key.length ? first.length : -1)
}

/** A value in Pterodactyl's eggs that sets an attribute. */
const attributeValue = /^\[([\w:.-]+)='(.*)'\]$/s

class XmlPatch {
  readonly unmatched: Array<Unmatched> = []
  private reached = 0
  private readonly line: string
  private readonly isPretty: boolean

  /** @param line the line end of the file. @param isPretty whether new elements stand on lines of their own */
  constructor(line: string, isPretty: boolean) {
    this.line = line
    this.isPretty = isPretty
  }

  /** The first part of a key names the root element, of which there is one. */
  patch(root: XmlElement, find: Find): Outcome {
    return firstProblem(Object.entries(find), ([key, value]) =>
      this.noting(key, () => {
        if (key === root.name) return this.assign(root, value)
        const [head, rest] = key.startsWith(`${root.name}.`) ? cut(key, root.name.length) : divide(key)
        const step = stepOf(head)
        if (Result.isFailure(step)) return step.failure
        if (step.success.name !== "*" && step.success.name !== root.name) {
          return refuse(`the key ${shown(key)} does not begin with the root element, <${root.name}>`)
        }
        return this.each(chosenBy(step.success, [root]), rest, value, step.success.conditions.length > 0)
      })
    )
  }

  private noting(key: string, change: () => Outcome): Outcome {
    const before = this.reached + this.unmatched.length
    const failed = change()
    if (this.reached + this.unmatched.length === before)
      this.unmatched.push({ key, reason: "no element fits" })
    return failed
  }

  private merge(element: XmlElement, values: Find): Outcome {
    if (Object.keys(values).length === 0) this.reached++
    return firstProblem(Object.entries(values), ([key, value]) =>
      this.noting(key, () => this.apply(element, key, value))
    )
  }

  private apply(parent: XmlElement, key: string, value: Schema.Json): Outcome {
    if (key.startsWith("@")) return this.write(parent, key, value)
    const names = new Set(elementsOf(parent).map(({ name }) => name))
    if (names.has(key)) return this.visit(parent, key, undefined, value)
    const [head, rest] = divide(key)
    const step = stepOf(head)
    if (Result.isFailure(step)) return step.failure
    if (step.success.conditions.length > 0) return this.select(parent, step.success, rest, value)
    for (let dot = key.lastIndexOf("."); dot > 0; dot = key.lastIndexOf(".", dot - 1)) {
      const [start, behind] = cut(key, dot)
      if (names.has(start)) return this.visit(parent, start, behind, value)
    }
    return head === "*" ? this.each(elementsOf(parent), rest, value) : this.visit(parent, head, rest, value)
  }

  /** Sets the elements `name` of `parent`: all of them, or the one at the number that `rest` begins with. */
  private visit(parent: XmlElement, name: string, rest: string | undefined, value: Schema.Json): Outcome {
    const present = elementsOf(parent).filter((element) => element.name === name)
    if (rest === undefined && isJsonList(value)) return this.assignList(parent, name, value)
    const counted = rest === undefined ? null : /^(0|[1-9]\d{0,8})(?:\.|$)/.exec(rest)
    const index = Number(counted?.[1] ?? 0)
    if (index > present.length) return refuse(`there are only ${present.length} elements <${name}>`)
    const behind = counted === null ? rest : rest?.slice(counted[0].length) || undefined
    const chosen = counted === null ? present : present.slice(index, index + 1)
    if (chosen.length > 0) return this.each(chosen, behind, value)
    if (behind?.split(".").includes("*")) return undefined
    const added = this.add(parent, name)
    return added instanceof PatchProblem ? added : this.each([added], behind, value)
  }

  /** Sets the elements that meet the conditions of `step`; if there is none, one with these attributes is added. */
  private select(parent: XmlElement, step: Step, rest: string | undefined, value: Schema.Json): Outcome {
    const chosen = chosenBy(step, elementsOf(parent))
    if (chosen.length > 0) return this.each(chosen, rest, value, true)
    if (step.name === "*" || rest?.split(".").includes("*")) return undefined
    const attributes = step.conditions.flatMap((rule) =>
      "value" in rule && rule.value !== undefined ? [[rule.attribute, rule.value] as const] : []
    )
    if (attributes.length < step.conditions.length) return undefined
    const added = this.add(parent, step.name)
    if (added instanceof PatchProblem) return added
    const failed = firstProblem(attributes, ([name, text]) => this.write(added, `@${name}`, text))
    return failed ?? this.each([added], rest, value, true)
  }

  private each(
    elements: ReadonlyArray<XmlElement>,
    rest: string | undefined,
    value: Schema.Json,
    isConditioned = false
  ): Outcome {
    return firstProblem(elements, (element) => {
      if (rest === undefined) return this.assign(element, value)
      const isAttribute =
        isConditioned &&
        attributeOf(element, rest) !== undefined &&
        !elementsOf(element).some(({ name }) => name === rest)
      return this.apply(element, isAttribute ? `@${rest}` : rest, value)
    })
  }

  private assign(element: XmlElement, value: Schema.Json): Outcome {
    return isJsonMap(value) ? this.merge(element, value) : this.write(element, element.name, value)
  }

  private assignList(parent: XmlElement, name: string, items: ReadonlyArray<Schema.Json>): Outcome {
    this.reached++
    const present = elementsOf(parent).filter((element) => element.name === name)
    for (const surplus of present.slice(items.length)) removeElement(parent, surplus)
    return firstProblem(items.entries(), ([n, item]) => {
      const element = present[n] ?? this.add(parent, name)
      return element instanceof PatchProblem ? element : this.assign(element, item)
    })
  }

  private add(parent: XmlElement, name: string): XmlElement | PatchProblem {
    if (!isXmlName(name)) return refuse(`${shown(name)} is no name of an element`)
    if (textOf(parent).trim() !== "") return refuse(`the element <${parent.name}> has a text, not elements`)
    return hasNamespace(parent, name)
      ? addElement(parent, name, this.isPretty ? this.line : undefined)
      : refuse(`the prefix of ${shown(name)} stands for no namespace`)
  }

  /** Sets the attribute that `key` names with an `@`, or the text of the element. */
  private write(element: XmlElement, key: string, value: Schema.Json): Outcome {
    this.reached++
    const inline = key.startsWith("@") || typeof value !== "string" ? null : attributeValue.exec(value)
    if (inline !== null) return this.write(element, `@${inline[1]}`, inline[2] ?? "")
    if (isJsonList(value) || isJsonMap(value))
      return refuse(`the key ${shown(key)} cannot hold a list or a map`)
    const name = key.startsWith("@") ? key.slice(1) : undefined
    const old = name === undefined ? textOf(element) : attributeOf(element, name)
    const text = flatText(value, old)
    if (!isXmlText(text)) return refuse(`the value of ${shown(key)} has characters that XML cannot hold`)
    if (name === undefined) {
      if (elementsOf(element).length > 0 && `${old}${text}`.trim() !== "")
        return refuse(`the element <${element.name}> has elements, not a text`)
      if (elementsOf(element).length === 0 && old !== text) setText(element, text, this.line)
      return undefined
    }
    if (!isXmlName(name)) return refuse(`${shown(key)} is no name of an attribute`)
    if (!hasNamespace(element, name)) return refuse(`the prefix of ${shown(key)} stands for no namespace`)
    if (old !== text) setAttribute(element, name, text)
    return undefined
  }
}

const declaredEncoding = (text: string): string =>
  /^<\?xml\s[^>]*?encoding\s*=\s*["']([^"']*)["']/.exec(text)?.[1]?.toLowerCase() ?? "utf-8"

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
export const patchXml: Patcher = (given, find) =>
  Result.gen(function* () {
    if (Object.keys(find).length === 0) return { text: given, unmatched: [] }
    const source = given === undefined || given.trim() === "" ? yield* fresh(find) : given
    const doc = yield* read(source)
    const [root] = elementsOf(doc)
    if (root === undefined) return yield* problem("it has no root element")
    const patch = new XmlPatch(lineEndOf(source), source !== given || /[\r\n]/.test(source.trim()))
    const failed = patch.patch(root, find)
    if (failed !== undefined) return yield* Result.fail(failed)
    const text = printed(doc)
    const { unmatched } = patch
    if (text === source) return { text, unmatched }
    const encoding = declaredEncoding(text)
    if (!["utf-8", "utf8", "us-ascii", "ascii"].includes(encoding) && /[^\p{ASCII}]/u.test(text))
      return yield* problem(`its encoding is ${shown(encoding)}, only UTF-8 is written`)
    yield* read(text)
    return { text, unmatched }
  })

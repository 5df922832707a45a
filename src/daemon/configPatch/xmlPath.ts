/** Keys of XML files: names of elements, divided by dots, with conditions in brackets. */
import type { Element } from "@xmldom/xmldom"
import { Result } from "effect"
import { cut, problem, shown } from "./find.ts"
import type { PatchProblem } from "./PatchProblem.ts"
import { elementsOf, textOf } from "./xmlTree.ts"

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

/** Splits a key at its first dot outside of brackets. */
export const divide = (key: string): readonly [string, string | undefined] => {
  const [first = key] = new RegExp(`^(?:${brackets.source}|[^.])*`, "s").exec(key) ?? []
  return cut(key, first.length < key.length ? first.length : -1)
}

/** Documents of maps and lists in any format, and `find` applied to them. */
import { Result, type Schema } from "effect"
import {
  type Find,
  isIndex,
  isJsonList,
  isJsonMap,
  PatchProblem,
  shown,
  spelledAs,
  standInOf,
  truthOf,
  type Unmatched
} from "./find.ts"

export type DataMap = Map<string, Data>
export type DataList = Array<Data>
export type Container = DataMap | DataList
/** A `bigint` is an integer of a file, with all its digits. */
export type Data = string | number | bigint | boolean | null | Written | Container

/** A value with the spelling of the file, which readers with types check: `1.0`, `True`, `yes`. */
export class Written {
  readonly value: number | boolean
  readonly text: string
  constructor(value: number | boolean, text: string) {
    this.value = value
    this.text = text
  }
}

export const isMap = (data: Data): data is DataMap => data instanceof Map
export const isList = (data: Data): data is DataList => Array.isArray(data)
export const isContainer = (data: Data | undefined): data is Container =>
  typeof data === "object" && data !== null && !(data instanceof Written)

const decimal = /^-?(?:0|[1-9]\d*)(\.\d+)?(?:[eE][+-]?\d+)?$/

/** Returns a value of one placeholder in the type of `old`, which stands in the file, if it can be of that type. */
const adopted = (value: string | number, old: Data | undefined): Data => {
  const text = String(value)
  const kind = old instanceof Written ? typeof old.value : typeof old
  if (kind === "string") return text
  if (kind === "boolean") return truthOf(text) ?? value
  if ((kind !== "number" && kind !== "bigint") || !decimal.test(text)) return value
  const number = Number(text)
  if (/^-?\d+$/.test(text) && !Number.isSafeInteger(number)) return BigInt(text)
  return Number.isFinite(number) ? number : value
}

/** Returns a value in the spelling of `old`: whole numbers with a fraction, booleans in the same words. */
const spelled = (value: Data, old: Data | undefined): Data => {
  if (!(old instanceof Written)) return value
  if (typeof old.value === "number") {
    const number = typeof value === "bigint" ? Number(value) : value
    if (typeof number !== "number") return value
    return new Written(number, /^-?\d+$/.test(String(number)) ? `${number}.0` : String(number))
  }
  // `yes` is a text for some readers and a boolean for others; `true` is a boolean for all
  const texts = typeof value === "string" && truthOf(value) === undefined ? [true, false] : []
  const truth = typeof value === "boolean" ? value : texts.find((each) => spelledAs(old.text, each) === value)
  return truth === undefined ? value : new Written(truth, spelledAs(old.text, truth) ?? String(truth))
}

const dataOf = (value: Schema.Json, old?: Data): Data => {
  const child = (key: string | number) => (isContainer(old) ? get(old, key) : undefined)
  if (isJsonList(value)) {
    const last = isContainer(old) && isList(old) ? old.at(-1) : undefined
    // an added item is spelled as the last one
    const form = (index: number) => child(index) ?? (last instanceof Written ? last : undefined)
    return value.map((item, index) => dataOf(item, form(index)))
  }
  const stands = standInOf(value)
  if (stands !== undefined) return spelled(adopted(stands, old), old)
  if (!isJsonMap(value)) return spelled(value as Exclude<Schema.Json, object> | null, old)
  return new Map(Object.entries(value).map(([key, inner]) => [key, dataOf(inner, child(key))]))
}

/** Returns whether both are the same value; integers compare as JSON numbers, the order of keys does not count. */
export const same = (a: Data | undefined, b: Data | undefined): boolean => {
  if (a === b) return true
  if (!isContainer(a) || !isContainer(b)) {
    const [one, other] = [a, b].map((data) => {
      const value = data instanceof Written ? data.value : data
      return typeof value === "bigint" ? Number(value) : value
    })
    return Object.is(one, other) || one === other
  }
  if (isMap(a)) return isMap(b) && a.size === b.size && [...a].every(([key, data]) => same(data, b.get(key)))
  return isList(b) && a.length === b.length && a.every((data, index) => same(data, b[index]))
}

/** Where a key can be divided: a dot, or an index in brackets. */
const divider = /\.|\[(?=(?:0|[1-9]\d{0,8})\](?:[.[]|$))/g
const bracketed = /^\[(\d+)\](?:\.(?=.)|(?=\[)|$)/

const dividers = (key: string): ReadonlyArray<number> =>
  [...key.matchAll(divider)].map(({ index }) => index).toReversed()

const divide = (key: string, at: number | undefined): readonly [string, string | undefined] =>
  at === undefined ? [key, undefined] : [key.slice(0, at), key.slice(key[at] === "." ? at + 1 : at)]

const get = (node: Container, key: string | number): Data | undefined =>
  isMap(node) ? node.get(String(key)) : node[Number(key)]

const set = (node: Container, key: string | number, data: Data): void => {
  if (isMap(node)) node.set(String(key), data)
  else node[Number(key)] = data
}

/** A format in which a document changes; `P` is a part of its text. */
export interface Format<P> {
  readonly parts: (part: P) => Iterable<readonly [string | number, P]>
  /** Returns whether a part stays, changes as a whole, or may change by its members. */
  readonly look: (part: P, from: Data | undefined, to: Data) => "keep" | "replace" | "compare"
  readonly replace: (part: P, value: Data) => void
  readonly add: (part: P, members: ReadonlyArray<readonly [string | number, Data]>) => void
}

export const loses = (from: Data | undefined, to: Data): boolean =>
  isContainer(from) && isContainer(to) && [...from.keys()].some((key) => get(to, key) === undefined)

/** Makes the changes of `format` that lead from one value of a part to another, inner ones first. */
export const change = <P>(format: Format<P>, part: P, from: Data | undefined, to: Data): void => {
  const how = format.look(part, from, to)
  if (how === "keep" || (how === "compare" && !isContainer(from) && same(from, to))) return
  if (how === "compare" && isContainer(from) && isContainer(to) && isMap(from) === isMap(to)) {
    if (!loses(from, to)) {
      for (const [key, inner] of format.parts(part))
        change(format, inner, get(from, key), get(to, key) ?? null)
      const added = [...to.entries()].filter(([key]) => get(from, key) === undefined)
      if (added.length > 0) format.add(part, added)
      return
    }
  }
  format.replace(part, to)
}

/** A document after `find` was applied; parts that did not change are the same objects as before. */
export interface Applied {
  readonly data: Container
  readonly unmatched: ReadonlyArray<Unmatched>
}

/**
 * Applies `find` to `root`; `undefined` is an empty document. A key is taken whole if the map has it, else from the
 * longest start that leads to a map or list; then it is split at its first dot or index in brackets. `*` is every
 * element. A number counts in a list from 0; the number after the last appends. Maps are merged, all other values
 * replaced. A missing part becomes a list if its index is in brackets, or if all keys in it are numbers and the first
 * is 0; else a map.
 */
export const applyFind = (root: Container | undefined, find: Find): Result.Result<Applied, PatchProblem> => {
  /** Copies made here, which may change. */
  const own = new Set<Data>()
  /** Maps made here that may still become lists, and how each is replaced; parents come first. */
  const fresh = new Map<DataMap, (list: DataList) => void>()
  /** The indices in brackets of those that must become lists. */
  const indexed = new Map<DataMap, string>()
  const unmatched: Array<Unmatched> = []
  const trail: Array<string> = []
  let values = 0
  let missed = ""

  const problem = (reason: string) => new PatchProblem({ reason })
  const noList = (index: string) =>
    problem(`${shown(index)} is an index, but there is a map in place of a list`)

  const make = (asList: boolean, replace: (made: DataMap, list: DataList) => void): Container => {
    if (asList) {
      const list: DataList = []
      own.add(list)
      return list
    }
    const map: DataMap = new Map()
    own.add(map)
    fresh.set(map, (list) => replace(map, list))
    return map
  }

  /** Returns a copy of the container at `key` that may change; makes a missing one. */
  const enter = (node: Container, key: string | number, rest: string | undefined): Container => {
    const child = get(node, key)
    if (isContainer(child) && own.has(child)) return child
    const entered = isContainer(child)
      ? isMap(child)
        ? new Map(child)
        : [...child]
      : make(rest?.startsWith("[") === true, (made, list) => {
          if (get(node, key) === made) set(node, key, list)
        })
    own.add(entered)
    set(node, key, entered)
    return entered
  }

  const visit = (
    node: Container,
    key: string | number,
    rest: string | undefined,
    value: Schema.Json
  ): PatchProblem | undefined => {
    if (rest !== undefined) return apply(enter(node, key, rest), rest, value)
    if (isJsonMap(value)) return merge(enter(node, key, undefined), value)
    values++
    const old = get(node, key)
    const data = dataOf(value, old)
    if (!same(old, data)) set(node, key, data)
    return undefined
  }

  const visitAll = (
    node: Container,
    rest: string | undefined,
    value: Schema.Json
  ): PatchProblem | undefined => {
    const keys = [...node.keys()]
    missed = keys.length === 0 ? "`*` is in an empty list or map" : "no element of `*` is a list or map"
    for (const key of keys) {
      // a scalar has no place for the rest of the key
      if ((rest !== undefined || isJsonMap(value)) && !isContainer(get(node, key))) continue
      const failed = visit(node, key, rest, value)
      if (failed !== undefined) return failed
    }
    return undefined
  }

  const applyToList = (list: DataList, key: string, value: Schema.Json): PatchProblem | undefined => {
    const index = bracketed.exec(key)
    const [head, rest] =
      index === null
        ? divide(key, dividers(key).at(-1))
        : [index[1] ?? "", key.slice(index[0].length) || undefined]
    if (head === "*") return visitAll(list, rest, value)
    const at = isIndex(head) ? Number(head) : -1
    const size = list.length
    return at >= 0 && at <= size
      ? visit(list, at, rest, value)
      : problem(`${shown(head)} is no index of a list of ${size}; use 0 to ${size} or *`)
  }

  const apply = (node: Container, key: string, value: Schema.Json): PatchProblem | undefined => {
    if (isList(node)) return applyToList(node, key, value)
    if (key !== "*" && node.has(key)) return visit(node, key, undefined, value)
    const places = dividers(key)
    const known = places.find((at) => at > 0 && isContainer(node.get(key.slice(0, at))))
    const [head, rest] = divide(key, known ?? places.at(-1))
    const index = bracketed.exec(key)
    if (index !== null) {
      if (!fresh.has(node)) return noList(index[0])
      indexed.set(node, index[0])
      return visit(node, index[1] ?? "", key.slice(index[0].length) || undefined, value)
    }
    if (head === "*") return visitAll(node, rest, value)
    if (known === undefined && rest?.split(".").includes("*")) {
      missed = `there is no list or map at ${shown(head)}`
      return undefined
    }
    if (head === "" || rest === "") return problem(`the key ${shown(key)} has an empty part`)
    return visit(node, head, rest, value)
  }

  const merge = (node: Container, entries: Find): PatchProblem | undefined => {
    if (Object.keys(entries).length === 0) values++
    for (const [key, value] of Object.entries(entries)) {
      const before = values + unmatched.length
      trail.push(key)
      const failed = apply(node, key, value)
      if (failed !== undefined) return failed
      if (values + unmatched.length === before) unmatched.push({ key: trail.join("."), reason: missed })
      trail.pop()
    }
    return undefined
  }

  let data: Container =
    root === undefined
      ? make(Object.keys(find)[0]?.startsWith("[") === true, (_, list) => {
          data = list
        })
      : isMap(root)
        ? new Map(root)
        : [...root]
  own.add(data)
  const failed = merge(data, find)
  if (failed !== undefined) return Result.fail(failed)
  for (const [map, replace] of [...fresh].toReversed()) {
    const keys = [...map.keys()]
    const index = indexed.get(map)
    if (keys[0] !== "0" || !keys.every(isIndex)) {
      if (index !== undefined) return Result.fail(noList(index))
      continue
    }
    const gap = keys.findIndex((key, index) => key !== String(index))
    if (gap >= 0) {
      return Result.fail(
        problem(`${shown(keys[gap] ?? "")} is no index of a list of ${gap}; use 0 to ${gap} or *`)
      )
    }
    replace([...map.values()])
  }
  return Result.succeed({ data, unmatched })
}

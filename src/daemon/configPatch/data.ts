import { Result, type Schema } from "effect"
import {
  type Find,
  firstProblem,
  isIndex,
  isJsonList,
  isJsonMap,
  PatchProblem,
  problem,
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

const MAX_DEPTH = 256

/** Reads a document by its parts, unless it is nested too deep. */
export const readDeep = <P>(root: P, read: (part: P, inner: (part: P) => Data) => Data) => {
  let tooDeep = false
  const at = (part: P, depth: number): Data => {
    tooDeep ||= depth > MAX_DEPTH
    return tooDeep ? null : read(part, (inner) => at(inner, depth + 1))
  }
  const data = at(root, 0)
  return tooDeep ? problem(`it is nested deeper than ${MAX_DEPTH} levels`) : Result.succeed(data)
}

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

/** The place of a map that was missing; it may still become a list. */
interface Place {
  readonly parent: Container | undefined
  readonly key: string | number
  index?: string
}

interface Work {
  /** Copies and new containers, which may change. */
  readonly own: Set<Data>
  /** Parents come before the maps in them. */
  readonly fresh: Map<DataMap, Place>
  readonly unmatched: Array<Unmatched>
  readonly trail: Array<string>
  values: number
  missed: string
}

type Outcome = PatchProblem | undefined

const noList = (index: string) =>
  new PatchProblem({ reason: `${shown(index)} is an index, but there is a map in place of a list` })

const noIndex = (index: string, size: number) =>
  new PatchProblem({ reason: `${shown(index)} is no index of a list of ${size}; use 0 to ${size} or *` })

/** Returns a copy of `old` that may change, or a new container that suits the keys which begin with `first`. */
const owned = (work: Work, old: Data | undefined, first: string | undefined, place: Place): Container => {
  if (isContainer(old) && work.own.has(old)) return old
  const empty = first?.startsWith("[") === true ? [] : new Map<string, Data>()
  const made = isContainer(old) ? (isMap(old) ? new Map(old) : [...old]) : empty
  work.own.add(made)
  if (!isContainer(old) && isMap(made)) work.fresh.set(made, place)
  return made
}

const enter = (work: Work, parent: Container, key: string | number, rest: string | undefined): Container => {
  const entered = owned(work, get(parent, key), rest, { parent, key })
  set(parent, key, entered)
  return entered
}

const visit = (
  work: Work,
  node: Container,
  key: string | number,
  rest: string | undefined,
  value: Schema.Json
): Outcome => {
  if (rest !== undefined) return apply(work, enter(work, node, key, rest), rest, value)
  if (isJsonMap(value)) return merge(work, enter(work, node, key, undefined), value)
  work.values++
  const old = get(node, key)
  const data = dataOf(value, old)
  if (!same(old, data)) set(node, key, data)
  return undefined
}

const visitAll = (work: Work, node: Container, rest: string | undefined, value: Schema.Json): Outcome => {
  const keys = [...node.keys()]
  work.missed = keys.length === 0 ? "`*` is in an empty list or map" : "no element of `*` is a list or map"
  // a scalar has no place for the rest of the key
  const inner = rest !== undefined || isJsonMap(value)
  return firstProblem(keys, (key) =>
    inner && !isContainer(get(node, key)) ? undefined : visit(work, node, key, rest, value)
  )
}

const applyToList = (work: Work, list: DataList, key: string, value: Schema.Json): Outcome => {
  const index = bracketed.exec(key)
  const [head, rest] =
    index === null
      ? divide(key, dividers(key).at(-1))
      : [index[1] ?? "", key.slice(index[0].length) || undefined]
  if (head === "*") return visitAll(work, list, rest, value)
  const at = isIndex(head) ? Number(head) : -1
  return at >= 0 && at <= list.length ? visit(work, list, at, rest, value) : noIndex(head, list.length)
}

const apply = (work: Work, node: Container, key: string, value: Schema.Json): Outcome => {
  if (isList(node)) return applyToList(work, node, key, value)
  if (key !== "*" && node.has(key)) return visit(work, node, key, undefined, value)
  const places = dividers(key)
  const known = places.find((at) => at > 0 && isContainer(node.get(key.slice(0, at))))
  const [head, rest] = divide(key, known ?? places.at(-1))
  const index = bracketed.exec(key)
  if (index !== null) {
    const place = work.fresh.get(node)
    if (place === undefined) return noList(index[0])
    place.index = index[0]
    return visit(work, node, index[1] ?? "", key.slice(index[0].length) || undefined, value)
  }
  if (head === "*") return visitAll(work, node, rest, value)
  if (known === undefined && rest?.split(".").includes("*")) {
    work.missed = `there is no list or map at ${shown(head)}`
    return undefined
  }
  if (head === "" || rest === "")
    return new PatchProblem({ reason: `the key ${shown(key)} has an empty part` })
  return visit(work, node, head, rest, value)
}

const merge = (work: Work, node: Container, entries: Find): Outcome => {
  if (Object.keys(entries).length === 0) work.values++
  return firstProblem(Object.entries(entries), ([key, value]) => {
    const before = work.values + work.unmatched.length
    work.trail.push(key)
    const failed = apply(work, node, key, value)
    if (work.values + work.unmatched.length === before)
      work.unmatched.push({ key: work.trail.join("."), reason: work.missed })
    work.trail.pop()
    return failed
  })
}

/** Returns the document in which missing maps with the keys of a list are lists. */
const settled = (work: Work, root: Container): Result.Result<Container, PatchProblem> => {
  let data = root
  for (const [map, { index, key, parent }] of [...work.fresh].toReversed()) {
    const keys = [...map.keys()]
    if (keys[0] !== "0" || !keys.every(isIndex)) {
      if (index !== undefined) return Result.fail(noList(index))
      continue
    }
    const gap = keys.findIndex((each, at) => each !== String(at))
    if (gap >= 0) return Result.fail(noIndex(keys[gap] ?? "", gap))
    const list = [...map.values()]
    if (parent === undefined) data = list
    else if (get(parent, key) === map) set(parent, key, list)
  }
  return Result.succeed(data)
}

/** Applies `find` to `root`, or to an empty document (spec 4.9). Parts that do not change stay the same objects. */
export const applyFind = (root: Container | undefined, find: Find) => {
  const unmatched: Array<Unmatched> = []
  const work: Work = { own: new Set(), fresh: new Map(), unmatched, trail: [], values: 0, missed: "" }
  const data = owned(work, root, Object.keys(find)[0], { parent: undefined, key: "" })
  const failed = merge(work, data, find)
  const made = failed === undefined ? settled(work, data) : Result.fail(failed)
  return Result.map(made, (data) => ({ data, unmatched }))
}

/** How `find` is applied to documents of maps and lists, whatever their format. */
import type { Schema } from "effect"
import { cut, isIndex, isMap, shown, startsList } from "./find.ts"
import { type Find, PatchProblem } from "./PatchProblem.ts"

/** A document that can be changed in place. A key is a string in a map, an index in a list. */
export interface Tree<N> {
  readonly kind: (node: N) => "map" | "list" | "scalar"
  readonly keys: (map: N) => ReadonlyArray<string>
  readonly size: (list: N) => number
  /** The child as it is. */
  readonly look: (node: N, key: string | number) => N | undefined
  /** The child, to be changed from here on without effect on any other place. */
  readonly enter: (node: N, key: string | number) => N | undefined
  /** Makes the child hold just `value`; adds it where it is missing. Answers the child. */
  readonly put: (node: N, key: string | number, value: Schema.Json) => N
}

/** A key as `find` has it, and all keys that stand beside it. */
interface Origin {
  readonly whole: string
  readonly keys: ReadonlyArray<string>
}

/** What these keys set in the place that `rest` of one of them is set in. */
const besides = (rest: string, { keys, whole }: Origin): ReadonlyArray<string> => {
  // Only these can make a list: the others need not be looked for.
  if (!/^0(?:\.|$)/.test(rest)) return [rest]
  const start = whole.slice(0, whole.length - rest.length)
  return keys.filter((key) => key.startsWith(start)).map((key) => key.slice(start.length))
}

/**
 * Applies `find` to `root`, a map or a list. A key is taken whole where the map has it, else from the longest start
 * that leads to a map or list; then it is split at the first dot. `*` is every element. A number counts in a list
 * from 0; the number after the last one appends. Maps are merged, all other values replaced; what is on the way and
 * is neither map nor list becomes a list where all keys in it are numbers and the first is 0, else a map.
 */
export const applyFind = <N>(tree: Tree<N>, root: N, find: Find): PatchProblem | undefined => {
  const merge = (node: N, values: Find): PatchProblem | undefined => {
    const keys = Object.keys(values)
    for (const [key, value] of Object.entries(values)) {
      const failed = apply(node, key, value, { whole: key, keys })
      if (failed !== undefined) return failed
    }
    return undefined
  }

  const holds = (node: N, key: string | number): boolean => {
    const child = tree.look(node, key)
    return child !== undefined && tree.kind(child) !== "scalar"
  }

  /** @param keys what is to be set in it */
  const open = (node: N, key: string | number, keys: () => ReadonlyArray<string>): N => {
    const child = tree.enter(node, key)
    if (child !== undefined && tree.kind(child) !== "scalar") return child
    return tree.put(node, key, startsList(keys()) ? [] : {})
  }

  /** `rest` is what is left of the key beyond this child. */
  const visit = (
    node: N,
    key: string | number,
    rest: string | undefined,
    value: Schema.Json,
    from: Origin
  ): PatchProblem | undefined => {
    if (rest !== undefined)
      return apply(
        open(node, key, () => besides(rest, from)),
        rest,
        value,
        from
      )
    if (isMap(value))
      return merge(
        open(node, key, () => Object.keys(value)),
        value
      )
    tree.put(node, key, value)
    return undefined
  }

  const visitAll = (
    node: N,
    keys: Iterable<string | number>,
    rest: string | undefined,
    value: Schema.Json,
    from: Origin
  ): PatchProblem | undefined => {
    for (const key of keys) {
      // an element that is neither map nor list has no place for the rest of the key
      if ((rest !== undefined || isMap(value)) && !holds(node, key)) continue
      const failed = visit(node, key, rest, value, from)
      if (failed !== undefined) return failed
    }
    return undefined
  }

  const applyToList = (list: N, key: string, value: Schema.Json, from: Origin): PatchProblem | undefined => {
    const [head, rest] = cut(key, key.indexOf("."))
    const size = tree.size(list)
    if (head === "*") return visitAll(list, Array(size).keys(), rest, value, from)
    const index = isIndex(head) ? Number(head) : -1
    return index >= 0 && index <= size
      ? visit(list, index, rest, value, from)
      : new PatchProblem({ reason: `${shown(head)} is no index of a list of ${size}; use 0 to ${size} or *` })
  }

  const apply = (node: N, key: string, value: Schema.Json, from: Origin): PatchProblem | undefined => {
    if (tree.kind(node) === "list") return applyToList(node, key, value, from)
    if (key !== "*" && tree.look(node, key) !== undefined) return visit(node, key, undefined, value, from)
    for (let dot = key.lastIndexOf("."); dot > 0; dot = key.lastIndexOf(".", dot - 1)) {
      const [start, rest] = cut(key, dot)
      if (start === "*") break
      if (holds(node, start)) return visit(node, start, rest, value, from)
    }
    const [head, rest] = cut(key, key.indexOf("."))
    if (rest?.split(".").includes("*") && head !== "*" && !holds(node, head)) return undefined
    if (head === "" || rest === "")
      return new PatchProblem({ reason: `the key ${shown(key)} has an empty part` })
    return head === "*"
      ? visitAll(node, tree.keys(node), rest, value, from)
      : visit(node, head, rest, value, from)
  }

  return merge(root, find)
}

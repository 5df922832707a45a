/** How `find` is applied to documents of maps and lists, whatever their format. */
import type { Schema } from "effect"
import { cut, isMap, shown } from "./find.ts"
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

/**
 * Applies `find` to `root`, a map or a list. A key is taken whole where the map has it, else from the longest start
 * that leads to a map or list; then it is split at the first dot. `*` is every element. A number counts in a list
 * from 0; the number after the last one appends. Maps are merged, all other values replaced; what is on the way and
 * is neither map nor list becomes a map.
 */
export const applyFind = <N>(tree: Tree<N>, root: N, find: Find): PatchProblem | undefined => {
  const merge = (node: N, values: Find): PatchProblem | undefined => {
    for (const [key, value] of Object.entries(values)) {
      const failed = apply(node, key, value)
      if (failed !== undefined) return failed
    }
    return undefined
  }

  const holds = (node: N, key: string | number): boolean => {
    const child = tree.look(node, key)
    return child !== undefined && tree.kind(child) !== "scalar"
  }

  const open = (node: N, key: string | number): N => {
    const child = tree.enter(node, key)
    return child !== undefined && tree.kind(child) !== "scalar" ? child : tree.put(node, key, {})
  }

  /** `rest` is what is left of the key beyond this child. */
  const visit = (
    node: N,
    key: string | number,
    rest: string | undefined,
    value: Schema.Json
  ): PatchProblem | undefined => {
    if (rest !== undefined) return apply(open(node, key), rest, value)
    if (isMap(value)) return merge(open(node, key), value)
    tree.put(node, key, value)
    return undefined
  }

  const visitAll = (
    node: N,
    keys: Iterable<string | number>,
    rest: string | undefined,
    value: Schema.Json
  ): PatchProblem | undefined => {
    for (const key of keys) {
      // an element that is neither map nor list has no place for the rest of the key
      if ((rest !== undefined || isMap(value)) && !holds(node, key)) continue
      const failed = visit(node, key, rest, value)
      if (failed !== undefined) return failed
    }
    return undefined
  }

  const applyToList = (list: N, key: string, value: Schema.Json): PatchProblem | undefined => {
    const [head, rest] = cut(key, key.indexOf("."))
    const size = tree.size(list)
    if (head === "*") return visitAll(list, Array(size).keys(), rest, value)
    const index = /^(?:0|[1-9]\d{0,8})$/.test(head) ? Number(head) : -1
    return index >= 0 && index <= size
      ? visit(list, index, rest, value)
      : new PatchProblem({ reason: `${shown(head)} is no index of a list of ${size}; use 0 to ${size} or *` })
  }

  const apply = (node: N, key: string, value: Schema.Json): PatchProblem | undefined => {
    if (tree.kind(node) === "list") return applyToList(node, key, value)
    if (key !== "*" && tree.look(node, key) !== undefined) return visit(node, key, undefined, value)
    for (let dot = key.lastIndexOf("."); dot > 0; dot = key.lastIndexOf(".", dot - 1)) {
      const [start, rest] = cut(key, dot)
      if (start === "*") break
      if (holds(node, start)) return visit(node, start, rest, value)
    }
    const [head, rest] = cut(key, key.indexOf("."))
    if (rest?.split(".").includes("*") && head !== "*" && !holds(node, head)) return undefined
    if (head === "" || rest === "")
      return new PatchProblem({ reason: `the key ${shown(key)} has an empty part` })
    return head === "*" ? visitAll(node, tree.keys(node), rest, value) : visit(node, head, rest, value)
  }

  return merge(root, find)
}

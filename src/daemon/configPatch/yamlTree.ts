/** A YAML document as a tree that notes what was changed in it. */
import { isDeepStrictEqual } from "node:util"
import { Result, type Schema } from "effect"
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  type Node,
  Pair,
  visit,
  type YAMLMap
} from "yaml"
import type { Tree } from "./tree.ts"
import { type Container, comparable, isContainer, nameOf, type Slot, valueIn } from "./yamlNodes.ts"

/** A change of a container that was read from the text; `old` is what stood there, absent for an addition. */
export interface Change {
  readonly container: Container
  readonly slot: Slot
  readonly old?: Node
}

export interface YamlTree {
  readonly tree: Tree<Node>
  readonly changes: ReadonlyArray<Change>
  /** Why a change cannot be made, once there is such a change. */
  readonly problem: () => string | undefined
}

/** Copies of aliased parts, in nodes: a few aliases of large parts must not become gigabytes. */
const MAX_COPIED_NODES = 100_000

export const yamlTree = (doc: Document): YamlTree => {
  const changes: Array<Change> = []
  const changed = new Set<Node>()
  const parents = new Map<Container, Container>()
  const indexes = new Map<Container, Map<string, Pair>>()
  const aliases = new Map<
    Node,
    Array<{ readonly alias: Alias; readonly container: Container; readonly slot: Slot }>
  >()
  const targets = new Map<Alias, Node>()
  let problem: string | undefined
  let copied = 0

  /** Notes parents and aliases below `root`; `resolve` says what an alias stands for. */
  const register = (
    root: Node,
    parent: Container | undefined,
    resolve: (alias: Alias) => Node | undefined
  ) => {
    if (isContainer(root) && parent !== undefined) parents.set(root, parent)
    visit(root, {
      Node: (key, node, path) => {
        const container = path.findLast(isContainer)
        if (isContainer(node) && container !== undefined) parents.set(node, container)
        if (!isAlias(node)) return
        const target = resolve(node)
        if (target === undefined || container === undefined) return
        const pair = path.at(-1)
        const slot = typeof key === "number" ? key : isPair(pair) ? pair : 0
        targets.set(node, target)
        const same = aliases.get(target)
        if (same === undefined) aliases.set(target, [{ alias: node, container, slot }])
        else same.push({ alias: node, container, slot })
      }
    })
  }

  const set = (container: Container, slot: Slot, value: Node) => {
    const old = valueIn(container, slot)
    // what was read from the text has a range, what was added since has none
    if (container.range && old?.range && !changed.has(old)) {
      changed.add(old)
      changes.push({ container, slot, old })
    } else if (container.range && old === undefined) changes.push({ container, slot })
    if (typeof slot === "number") container.items[slot] = value
    else slot.value = value
    if (isContainer(value)) parents.set(value, container)
  }

  /** A copy without anchors and places, for `container`. */
  const copy = (target: Node, container: Container): Node => {
    const inner: Array<Alias> = []
    visit(target, {
      Node: (_, node) => {
        copied++
        if (isAlias(node)) inner.push(node)
        return copied > MAX_COPIED_NODES ? visit.BREAK : undefined
      }
    })
    if (copied > MAX_COPIED_NODES) {
      problem ??= "it has too many aliases of large parts"
      return doc.createNode(null)
    }
    const clone = target.clone()
    if (!isNode(clone)) return doc.createNode(null)
    visit(clone, {
      Node: (_, node) => {
        node.range = null
        if (!isAlias(node)) delete node.anchor
      }
    })
    let at = 0
    register(clone, container, () => {
      const alias = inner[at++]
      return alias === undefined ? undefined : targets.get(alias)
    })
    return clone
  }

  /** Puts copies in place of the aliases of a part that is about to change. */
  const detach = (target: Node) => {
    const places = aliases.get(target)
    if (places === undefined) return
    aliases.delete(target)
    for (const { alias, container, slot } of places) {
      if (valueIn(container, slot) === alias) set(container, slot, copy(target, container))
      else if (typeof slot !== "number" && slot.key === alias) problem ??= `*${alias.source} is used as a key`
    }
  }

  const detachAround = (container: Container) => {
    for (let at: Container | undefined = container; at !== undefined; at = parents.get(at)) detach(at)
  }

  const replace = (container: Container, slot: Slot, value: Node) => {
    detachAround(container)
    const old = valueIn(container, slot)
    if (aliases.size > 0 && old !== undefined) {
      visit(old, {
        Node: (_, node) => {
          if (!isAlias(node)) detach(node)
        }
      })
    }
    set(container, slot, value)
  }

  const indexOf = (map: YAMLMap): Map<string, Pair> => {
    const known = indexes.get(map)
    if (known !== undefined) return known
    const index = new Map<string, Pair>()
    for (const pair of map.items) {
      const name = nameOf(pair.key)
      if (name !== undefined) index.set(name, pair)
    }
    indexes.set(map, index)
    return index
  }

  const slotOf = (node: Node, key: string | number): Slot | undefined => {
    if (isMap(node)) return indexOf(node).get(String(key))
    return isSeq(node) && typeof key === "number" && key < node.items.length ? key : undefined
  }

  const look = (node: Node, key: string | number): Node | undefined => {
    const slot = slotOf(node, key)
    if (slot === undefined || !isContainer(node)) return undefined
    const value = valueIn(node, slot)
    if (value === undefined) return doc.createNode(null)
    return isAlias(value) ? (targets.get(value) ?? value) : value
  }

  const enter = (node: Node, key: string | number): Node | undefined => {
    const slot = slotOf(node, key)
    if (slot === undefined || !isContainer(node)) return undefined
    const value = valueIn(node, slot)
    const target = isAlias(value) ? targets.get(value) : undefined
    if (!isContainer(target)) return value
    detachAround(node)
    const clone = copy(target, node)
    set(node, slot, clone)
    return clone
  }

  const holds = (node: Node | undefined, value: Schema.Json): boolean => {
    if (node === undefined || isAlias(node)) return false
    if (isScalar(node)) return comparable(node.value) === value
    const now = Result.try(() => comparable(node.toJS(doc)))
    return Result.isSuccess(now) && isDeepStrictEqual(now.success, value)
  }

  const put = (node: Node, key: string | number, value: Schema.Json): Node => {
    if (!isContainer(node)) return node
    const slot = slotOf(node, key)
    const old = slot === undefined ? undefined : valueIn(node, slot)
    if (old !== undefined && holds(old, value)) return old
    const fresh = doc.createNode(value)
    if (!isNode(fresh)) return node
    if (slot !== undefined) replace(node, slot, fresh)
    else if (isSeq(node)) {
      detachAround(node)
      set(node, node.items.length, fresh)
    } else {
      detachAround(node)
      const pair = new Pair<unknown, unknown>(doc.createNode(String(key)), null)
      node.items.push(pair)
      indexOf(node).set(String(key), pair)
      set(node, pair, fresh)
    }
    return fresh
  }

  const anchors = new Map<string, Node>()
  if (doc.contents !== null) {
    visit(doc, {
      Node: (_, node) => {
        if (isAlias(node)) {
          const target = anchors.get(node.source)
          if (target !== undefined) targets.set(node, target)
        } else if (node.anchor !== undefined) anchors.set(node.anchor, node)
      }
    })
    register(doc.contents, undefined, (alias) => targets.get(alias))
  }

  return {
    tree: {
      kind: (node) => (isMap(node) ? "map" : isSeq(node) ? "list" : "scalar"),
      keys: (node) => (isMap(node) ? [...indexOf(node).keys()] : []),
      size: (node) => (isSeq(node) ? node.items.length : 0),
      look,
      enter,
      put
    },
    changes,
    problem: () => problem
  }
}

/** Small questions about the nodes of a YAML document. */
import { isMap, isNode, isScalar, isSeq, type Node, type Pair, type YAMLMap, type YAMLSeq } from "yaml"

export type Container = YAMLMap | YAMLSeq

/** Where a value stands: a pair of a map, or an index of a list. */
export type Slot = Pair | number

export const isContainer = (node: unknown): node is Container => isMap(node) || isSeq(node)

/** The key as text, also where YAML reads a number or a boolean; undefined for keys that are lists or maps. */
export const nameOf = (key: unknown): string | undefined => {
  if (!isScalar(key)) return undefined
  return typeof key.value === "string" ? key.value : (key.source ?? String(key.value))
}

export const valueIn = (container: Container, slot: Slot): Node | undefined => {
  const value = typeof slot === "number" ? container.items[slot] : slot.value
  return isNode(value) ? value : undefined
}

/** Integers are read as BigInt to keep all their digits; patches have numbers. */
export const comparable = (value: unknown): unknown => {
  if (typeof value === "bigint") return Number(value)
  if (Array.isArray(value)) return value.map(comparable)
  if (value instanceof Map)
    return new Map([...value].map(([key, child]) => [comparable(key), comparable(child)]))
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype)
    return value
  return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, comparable(child)]))
}

/** The free resources of a node: bytes, and the most ports that one of its addresses has. */
export interface Room {
  readonly memory_bytes: number
  readonly disk_bytes: number
  readonly ports: number
}

/** Whether `need` fits into `room`. */
export const hasRoom = (room: Room, need: Room): boolean =>
  room.memory_bytes >= need.memory_bytes && room.disk_bytes >= need.disk_bytes && room.ports >= need.ports

/** Negative, 0 or positive; 0 only for the same entry. */
export type Compare<K> = (a: K, b: K) => number

/** The resources of a branch are the maximum of each among its entries. */
interface Branch<A> extends Room {
  readonly left: Tree<A>
  readonly entry: A
  readonly right: Tree<A>
  readonly height: number
}

/**
 * An immutable balanced (AVL) tree in the caller's order; a change copies one path. Each branch knows the maximum of
 * the resources below it, so that a search skips whole branches of full nodes.
 */
export type Tree<A> = Branch<A> | undefined

const heightOf = <A>(tree: Tree<A>): number => tree?.height ?? 0

const branch = <A extends { readonly room: Room }>(left: Tree<A>, entry: A, right: Tree<A>): Branch<A> => {
  let { memory_bytes, disk_bytes, ports } = entry.room
  if (left !== undefined) {
    memory_bytes = Math.max(memory_bytes, left.memory_bytes)
    disk_bytes = Math.max(disk_bytes, left.disk_bytes)
    ports = Math.max(ports, left.ports)
  }
  if (right !== undefined) {
    memory_bytes = Math.max(memory_bytes, right.memory_bytes)
    disk_bytes = Math.max(disk_bytes, right.disk_bytes)
    ports = Math.max(ports, right.ports)
  }
  const height = 1 + Math.max(heightOf(left), heightOf(right))
  return { left, entry, right, height, memory_bytes, disk_bytes, ports }
}

/** Returns a branch of two trees whose heights differ by at most two. */
const balanced = <A extends { readonly room: Room }>(left: Tree<A>, entry: A, right: Tree<A>): Branch<A> => {
  const lean = heightOf(left) - heightOf(right)
  if (lean > 1 && left !== undefined) {
    if (heightOf(left.left) >= heightOf(left.right) || left.right === undefined) {
      return branch(left.left, left.entry, branch(left.right, entry, right))
    }
    const middle = left.right
    return branch(
      branch(left.left, left.entry, middle.left),
      middle.entry,
      branch(middle.right, entry, right)
    )
  }
  if (lean < -1 && right !== undefined) {
    if (heightOf(right.right) >= heightOf(right.left) || right.left === undefined) {
      return branch(branch(left, entry, right.left), right.entry, right.right)
    }
    const middle = right.left
    return branch(
      branch(left, entry, middle.left),
      middle.entry,
      branch(middle.right, right.entry, right.right)
    )
  }
  return branch(left, entry, right)
}

/** Returns the tree with `entry`; it replaces an entry that compares equal. */
export const insert = <A extends { readonly room: Room }>(
  tree: Tree<A>,
  entry: A,
  compare: Compare<A>
): Tree<A> => {
  if (tree === undefined) return branch(undefined, entry, undefined)
  const side = compare(entry, tree.entry)
  if (side === 0) return branch(tree.left, entry, tree.right)
  return side < 0
    ? balanced(insert(tree.left, entry, compare), tree.entry, tree.right)
    : balanced(tree.left, tree.entry, insert(tree.right, entry, compare))
}

/** Returns the tree without the entry that compares equal to `entry`. */
export const remove = <A extends { readonly room: Room }>(
  tree: Tree<A>,
  entry: A,
  compare: Compare<A>
): Tree<A> => {
  if (tree === undefined) return undefined
  const side = compare(entry, tree.entry)
  if (side < 0) return balanced(remove(tree.left, entry, compare), tree.entry, tree.right)
  if (side > 0) return balanced(tree.left, tree.entry, remove(tree.right, entry, compare))
  if (tree.left === undefined) return tree.right
  if (tree.right === undefined) return tree.left
  const successor = lowestOf(tree.right)
  return balanced(tree.left, successor, remove(tree.right, successor, compare))
}

const lowestOf = <A>(tree: Branch<A>): A => {
  let lowest = tree
  while (lowest.left !== undefined) lowest = lowest.left
  return lowest.entry
}

/** A search: the needed resources, and the other conditions of an entry. */
export interface Search<A> {
  readonly need: Room
  readonly accepts: (entry: A) => boolean
}

/**
 * Returns the first entry in order that has the resources and is accepted. If nodes lack only one kind of resource,
 * this takes O(log entries); entries that lack another kind or are not accepted are visited one by one.
 */
export const first = <A extends { readonly room: Room }>(tree: Tree<A>, search: Search<A>): A | undefined => {
  if (tree === undefined || !hasRoom(tree, search.need)) return undefined
  const earlier = first(tree.left, search)
  if (earlier !== undefined) return earlier
  if (hasRoom(tree.entry.room, search.need) && search.accepts(tree.entry)) return tree.entry
  return first(tree.right, search)
}

/** {@link first} among the entries after `key`. */
export const firstAfter = <K, A extends K & { readonly room: Room }>(
  tree: Tree<A>,
  search: Search<A>,
  key: K,
  compare: Compare<K>
): A | undefined => {
  if (tree === undefined || !hasRoom(tree, search.need)) return undefined
  if (compare(tree.entry, key) <= 0) return firstAfter(tree.right, search, key, compare)
  const earlier = firstAfter(tree.left, search, key, compare)
  if (earlier !== undefined) return earlier
  if (hasRoom(tree.entry.room, search.need) && search.accepts(tree.entry)) return tree.entry
  return first(tree.right, search)
}

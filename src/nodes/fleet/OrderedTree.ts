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
  left: Tree<A>
  entry: A
  right: Tree<A>
  height: number
  memory_bytes: number
  disk_bytes: number
  ports: number
}

/**
 * A balanced (AVL) tree in the caller's order; a change takes the tree and returns the changed one. Each branch knows the
 * maximum of the resources below it, so that a search skips whole branches of full nodes.
 */
export type Tree<A> = Branch<A> | undefined

const heightOf = <A>(tree: Tree<A>): number => (tree === undefined ? 0 : tree.height)

/** Computes what a branch knows of its entries. */
const computed = <A extends { readonly room: Room }>(tree: Branch<A>): Branch<A> => {
  const { left, right } = tree
  let { memory_bytes, disk_bytes, ports } = tree.entry.room
  let height = 0
  if (left !== undefined) {
    memory_bytes = Math.max(memory_bytes, left.memory_bytes)
    disk_bytes = Math.max(disk_bytes, left.disk_bytes)
    ports = Math.max(ports, left.ports)
    height = left.height
  }
  if (right !== undefined) {
    memory_bytes = Math.max(memory_bytes, right.memory_bytes)
    disk_bytes = Math.max(disk_bytes, right.disk_bytes)
    ports = Math.max(ports, right.ports)
    height = Math.max(height, right.height)
  }
  tree.memory_bytes = memory_bytes
  tree.disk_bytes = disk_bytes
  tree.ports = ports
  tree.height = height + 1
  return tree
}

/** Puts the left branch of a tree in its place. */
const turnedRight = <A extends { readonly room: Room }>(tree: Branch<A>): Branch<A> => {
  const top = tree.left
  if (top === undefined) return tree
  tree.left = top.right
  top.right = computed(tree)
  return computed(top)
}

/** Puts the right branch of a tree in its place. */
const turnedLeft = <A extends { readonly room: Room }>(tree: Branch<A>): Branch<A> => {
  const top = tree.right
  if (top === undefined) return tree
  tree.right = top.left
  top.left = computed(tree)
  return computed(top)
}

/** Balances a tree whose branches are balanced and differ in height by at most two. */
const balanced = <A extends { readonly room: Room }>(tree: Branch<A>): Branch<A> => {
  const { left, right } = tree
  const lean = heightOf(left) - heightOf(right)
  if (lean > 1 && left !== undefined) {
    if (heightOf(left.left) < heightOf(left.right)) tree.left = turnedLeft(left)
    return turnedRight(tree)
  }
  if (lean < -1 && right !== undefined) {
    if (heightOf(right.right) < heightOf(right.left)) tree.right = turnedRight(right)
    return turnedLeft(tree)
  }
  return computed(tree)
}

/** Adds `entry`; it replaces an entry that compares equal. */
export const insert = <A extends { readonly room: Room }>(
  tree: Tree<A>,
  entry: A,
  compare: Compare<A>
): Tree<A> => {
  if (tree === undefined) return { left: undefined, entry, right: undefined, height: 1, ...entry.room }
  const side = compare(entry, tree.entry)
  if (side < 0) tree.left = insert(tree.left, entry, compare)
  else if (side > 0) tree.right = insert(tree.right, entry, compare)
  else tree.entry = entry
  return balanced(tree)
}

/** Removes the entry that compares equal to `entry`. */
export const remove = <A extends { readonly room: Room }>(
  tree: Tree<A>,
  entry: A,
  compare: Compare<A>
): Tree<A> => {
  if (tree === undefined) return undefined
  const side = compare(entry, tree.entry)
  if (side < 0) {
    tree.left = remove(tree.left, entry, compare)
  } else if (side > 0) {
    tree.right = remove(tree.right, entry, compare)
  } else {
    if (tree.left === undefined) return tree.right
    if (tree.right === undefined) return tree.left
    tree.entry = lowestOf(tree.right)
    tree.right = remove(tree.right, tree.entry, compare)
  }
  return balanced(tree)
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

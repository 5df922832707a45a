import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { first, insert, type Room, remove, type Tree } from "../../../src/nodes/fleet/OrderedTree.ts"

interface Entry {
  readonly key: number
  readonly room: Room
}
const compare = (a: Entry, b: Entry) => a.key - b.key
const entry = (key: number): Entry => ({
  key,
  room: { memory_bytes: Math.abs(key * 7) % 11, disk_bytes: Math.abs(key * 5) % 13, ports: Math.abs(key) % 7 }
})
const entries = (tree: Tree<Entry>): ReadonlyArray<Entry> =>
  tree === undefined ? [] : [...entries(tree.left), tree.entry, ...entries(tree.right)]

/** Fails unless every branch is balanced and stores its height and the most room below it. */
const check = (tree: Tree<Entry>): void => {
  if (tree === undefined) return
  const left = tree.left?.height ?? 0
  const right = tree.right?.height ?? 0
  assert.isAtMost(Math.abs(left - right), 1)
  assert.strictEqual(tree.height, 1 + Math.max(left, right))
  const rooms = entries(tree).map(({ room }) => room)
  const { memory_bytes, disk_bytes, ports } = tree
  assert.deepStrictEqual(
    { memory_bytes, disk_bytes, ports },
    {
      memory_bytes: Math.max(...rooms.map((room) => room.memory_bytes)),
      disk_bytes: Math.max(...rooms.map((room) => room.disk_bytes)),
      ports: Math.max(...rooms.map((room) => room.ports))
    }
  )
  check(tree.left)
  check(tree.right)
}

describe("spec 2.4: the order of nodes", () => {
  it("the tree stays balanced and sorted under any insertions and removals", () => {
    const step = fc.tuple(fc.constantFrom("insert", "insert", "remove"), fc.nat({ max: 40 }))
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        let tree: Tree<Entry>
        const model = new Set<number>()
        for (const [kind, key] of steps) {
          if (kind === "insert") {
            tree = insert(tree, entry(key), compare)
            model.add(key)
          } else {
            tree = remove(tree, entry(key), compare)
            model.delete(key)
          }
        }
        check(tree)
        assert.deepStrictEqual(
          entries(tree).map(({ key }) => key),
          [...model].sort((a, b) => a - b)
        )
      })
    )
  })

  it.each<readonly [string, (i: number) => number]>([
    ["ascending", (i) => i],
    ["descending", (i) => -i],
    ["from both ends", (i) => (i % 2 === 0 ? i : -i)]
  ])("the depth is that of a balanced tree: %s", (_, key) => {
    let tree: Tree<Entry>
    for (let i = 0; i < 10_000; i++) tree = insert(tree, entry(key(i)), compare)
    assert.isAtMost(tree?.height ?? 0, 1.45 * Math.log2(10_002))
    for (let i = 0; i < 9_900; i++) tree = remove(tree, entry(key(i)), compare)
    assert.isAtMost(tree?.height ?? 0, 1.45 * Math.log2(102))
    const search = { need: { memory_bytes: 0, disk_bytes: 0, ports: 0 }, accepts: () => true }
    assert.strictEqual(first(tree, search), entries(tree)[0])
  })
})

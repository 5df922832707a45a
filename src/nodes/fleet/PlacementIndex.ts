import type { NodeId } from "../../domain/Id.ts"
import type { RuntimeKind } from "../../domain/Node.ts"
import { type Compare, first, firstAfter, insert, remove, type Search, type Tree } from "./OrderedTree.ts"
import { byName, type Candidate, type Need, orderOf, type Rank, type Strategy } from "./place.ts"

/** Trees of the nodes that offer one runtime. */
interface Trees {
  anywhere: Tree<Candidate>
  /** Of the locations that a need has named: without such needs, a change costs one tree. */
  readonly byLocation: Map<string, Tree<Candidate>>
}

/** The kind of a need: needs of one kind share their turn. */
const turnOf = ({ locations, runtimes }: Need): string => JSON.stringify([runtimes, locations])

/**
 * The candidates in the order of the strategy: a tree per runtime, and per runtime and location once a need names
 * the location. A choice or a change costs O(log nodes) per location of the need. No I/O.
 */
export class PlacementIndex {
  readonly #strategy: Strategy
  readonly #compare: Compare<Rank>
  readonly #candidates = new Map<NodeId, Candidate>()
  readonly #trees = new Map<RuntimeKind, Trees>()
  /** Round-robin: the last chosen node per kind of need, so that different needs do not skip each other's nodes. */
  readonly #turns = new Map<string, Pick<Rank, "name" | "id">>()

  /** @param compare the strategy's order; a test may count its calls */
  constructor(strategy: Strategy, compare: Compare<Rank> = orderOf(strategy)) {
    this.#strategy = strategy
    this.#compare = compare
  }

  /** Number of candidates. */
  get size(): number {
    return this.#candidates.size
  }

  get(id: NodeId): Candidate | undefined {
    return this.#candidates.get(id)
  }

  /** Adds or replaces a candidate. */
  set(candidate: Candidate): void {
    this.delete(candidate.id)
    this.#candidates.set(candidate.id, candidate)
    this.#change(candidate, (tree) => insert(tree, candidate, this.#compare))
  }

  /** Removes a candidate, if it is one. */
  delete(id: NodeId): void {
    const candidate = this.#candidates.get(id)
    if (candidate === undefined) return
    this.#candidates.delete(id)
    this.#change(candidate, (tree) => remove(tree, candidate, this.#compare))
  }

  /** Changes the trees that have a candidate; one of a runtime that it names twice is changed twice. */
  #change({ location, runtimes }: Candidate, changed: (tree: Tree<Candidate>) => Tree<Candidate>): void {
    for (const runtime of runtimes) {
      const trees = this.#trees.get(runtime) ?? { anywhere: undefined, byLocation: new Map() }
      this.#trees.set(runtime, trees)
      trees.anywhere = changed(trees.anywhere)
      if (trees.byLocation.has(location))
        trees.byLocation.set(location, changed(trees.byLocation.get(location)))
    }
  }

  /** Returns the candidate that the strategy chooses for a need; undefined: none fits. */
  choose(need: Need): Candidate | undefined {
    const chosen = this.preview(need)
    if (chosen !== undefined && this.#strategy === "round-robin")
      this.#turns.set(turnOf(need), { name: chosen.name, id: chosen.id })
    return chosen
  }

  /** Returns what {@link choose} returns, and leaves the turn of the nodes as it is. */
  preview(need: Need): Candidate | undefined {
    const { alone, except, from } = need
    const search: Search<Candidate> = {
      need,
      accepts: (candidate) =>
        candidate.id !== from &&
        except?.includes(candidate.id) !== true &&
        (alone === undefined || !candidate.blueprints.has(alone))
    }
    const trees = this.#treesFor(need)
    if (this.#strategy !== "round-robin") return this.#best(trees.map((tree) => first(tree, search)))

    const last = this.#turns.get(turnOf(need))
    const next =
      last === undefined ? undefined : this.#best(trees.map((tree) => firstAfter(tree, search, last, byName)))
    return next ?? this.#best(trees.map((tree) => first(tree, search)))
  }

  #treesFor(need: Need): ReadonlyArray<Tree<Candidate>> {
    return need.runtimes.flatMap((runtime) => {
      const trees = this.#trees.get(runtime)
      if (trees === undefined) return []
      if (need.locations.length === 0) return [trees.anywhere]
      return need.locations.map((location) => this.#treeAt(trees, runtime, location))
    })
  }

  #treeAt(trees: Trees, runtime: RuntimeKind, location: string): Tree<Candidate> {
    if (trees.byLocation.has(location)) return trees.byLocation.get(location)
    let tree: Tree<Candidate>
    for (const candidate of this.#candidates.values()) {
      if (candidate.location === location && candidate.runtimes.includes(runtime))
        tree = insert(tree, candidate, this.#compare)
    }
    trees.byLocation.set(location, tree)
    return tree
  }

  #best(found: ReadonlyArray<Candidate | undefined>): Candidate | undefined {
    return found.reduce(
      (best, one) => (one !== undefined && (best === undefined || this.#compare(one, best) < 0) ? one : best),
      undefined
    )
  }
}

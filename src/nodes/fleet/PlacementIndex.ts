import type { RuntimeKind } from "../../domain/Node.ts"
import { type Compare, first, firstAfter, insert, remove, type Search, type Tree } from "./OrderedTree.ts"
import { byName, type Candidate, type Need, orderOf, type Rank, type Strategy } from "./place.ts"

/** Trees of the nodes that offer one runtime. */
interface Trees {
  anywhere: Tree<Candidate>
  readonly byLocation: Map<string, Tree<Candidate>>
}

/**
 * The candidates, kept in the order of the strategy, a tree for each runtime and for each location with it: a
 * choice or a change costs O(log nodes), times the locations that a need names. No I/O.
 */
export class PlacementIndex {
  readonly #strategy: Strategy
  readonly #compare: Compare<Rank>
  readonly #candidates = new Map<string, Candidate>()
  readonly #trees = new Map<RuntimeKind, Trees>()
  /** Round-robin: the node chosen last, by what was asked for, so that needs of other places do not skip turns. */
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

  get(id: string): Candidate | undefined {
    return this.#candidates.get(id)
  }

  /** Adds a candidate, or replaces what was known of it. */
  set(candidate: Candidate): void {
    this.delete(candidate.id)
    this.#candidates.set(candidate.id, candidate)
    for (const runtime of new Set(candidate.runtimes)) {
      const trees = this.#trees.get(runtime) ?? { anywhere: undefined, byLocation: new Map() }
      this.#trees.set(runtime, trees)
      trees.anywhere = insert(trees.anywhere, candidate, this.#compare)
      const there = insert(trees.byLocation.get(candidate.location), candidate, this.#compare)
      trees.byLocation.set(candidate.location, there)
    }
  }

  /** Takes a candidate out; nothing when it is none. */
  delete(id: string): void {
    const candidate = this.#candidates.get(id)
    if (candidate === undefined) return
    this.#candidates.delete(id)
    for (const runtime of new Set(candidate.runtimes)) {
      const trees = this.#trees.get(runtime)
      if (trees === undefined) continue
      trees.anywhere = remove(trees.anywhere, candidate, this.#compare)
      const there = remove(trees.byLocation.get(candidate.location), candidate, this.#compare)
      if (there === undefined) trees.byLocation.delete(candidate.location)
      else trees.byLocation.set(candidate.location, there)
    }
  }

  /** The candidate that the strategy takes for this need; undefined when none fits. */
  choose(need: Need): Candidate | undefined {
    const { alone, except } = need
    const search: Search<Candidate> = {
      need,
      accepts: (candidate) =>
        (alone === undefined || !candidate.blueprints.has(alone)) && except?.includes(candidate.id) !== true
    }
    const trees = this.#treesFor(need)
    if (this.#strategy !== "round-robin") return this.#best(trees.map((tree) => first(tree, search)))

    const turn = JSON.stringify([need.runtimes, need.locations])
    const last = this.#turns.get(turn)
    const next =
      last === undefined ? undefined : this.#best(trees.map((tree) => firstAfter(tree, search, last, byName)))
    const chosen = next ?? this.#best(trees.map((tree) => first(tree, search)))
    if (chosen !== undefined) this.#turns.set(turn, { name: chosen.name, id: chosen.id })
    return chosen
  }

  #treesFor(need: Need): ReadonlyArray<Tree<Candidate>> {
    return need.runtimes.flatMap((runtime) => {
      const trees = this.#trees.get(runtime)
      if (trees === undefined) return []
      if (need.locations.length === 0) return [trees.anywhere]
      return need.locations.map((location) => trees.byLocation.get(location))
    })
  }

  #best(found: ReadonlyArray<Candidate | undefined>): Candidate | undefined {
    return found.reduce(
      (best, one) => (one !== undefined && (best === undefined || this.#compare(one, best) < 0) ? one : best),
      undefined
    )
  }
}

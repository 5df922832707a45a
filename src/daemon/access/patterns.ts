/**
 * Patterns of paths and globs of names (spec 10.4). A match reads a text once, and takes time in proportion to its length
 * and to that of the patterns.
 */

type Token =
  | { readonly kind: "text"; readonly text: string }
  /** `?` */
  | { readonly kind: "one" }
  /** `*`, or `**` with `folders` */
  | { readonly kind: "any"; readonly folders: boolean }
  /** The next `count` tokens may be left out. */
  | { readonly kind: "option"; readonly count: number }
  /** The whole pattern has matched. */
  | { readonly kind: "end" }

/** Counts the characters and positions that matches look at, which is the measure of their work. */
export interface Work {
  steps: number
}

const tokensOf = (pattern: string): ReadonlyArray<Token> => {
  const tokens: Array<Token> = []
  for (const [part] of pattern.matchAll(/(?<=^|\/)\*\*\/|\*\*+|[\s\S]/gu)) {
    if (part === "**/") {
      tokens.push({ kind: "option", count: 2 }, { kind: "any", folders: true }, { kind: "text", text: "/" })
    } else if (part.startsWith("*")) tokens.push({ kind: "any", folders: part.length > 1 })
    else tokens.push(part === "?" ? { kind: "one" } : { kind: "text", text: part })
  }
  return [...tokens, { kind: "end" }]
}

/** The positions in the tokens that a text has reached. Texts that reach the same ones share it. */
interface States {
  readonly positions: ReadonlyArray<number>
  /** Whether a pattern has matched the whole text. */
  readonly isEnd: boolean
  /** The states after one more character, as far as they are known. */
  readonly next: Map<string, States>
}

/** Positions in memory. A list of patterns that reaches more of them forgets the states that it knows. */
const MOST_KNOWN = 500_000

/** All patterns at once, as an automaton that keeps the states that texts have reached. */
class Automaton {
  readonly #begins: ReadonlyArray<number>
  readonly #tokens: ReadonlyArray<Token>
  /** Characters that patterns name. All others lead to the same states. */
  readonly #named = new Set("/")
  readonly #work: Work
  readonly #known = new Map<string, States>()
  #size = 0

  constructor(patterns: ReadonlyArray<string>, work: Work) {
    const begins: Array<number> = []
    const tokens: Array<Token> = []
    for (const pattern of patterns) {
      begins.push(tokens.length)
      for (const token of tokensOf(pattern)) {
        tokens.push(token)
        if (token.kind === "text") this.#named.add(token.text)
      }
    }
    this.#begins = begins
    this.#tokens = tokens
    this.#work = work
  }

  get begin(): States {
    return this.#closed(this.#begins)
  }

  /** Returns the states after a text. */
  after(states: States, text: string): States {
    let now = states
    for (const character of text) {
      if (now.positions.length === 0) return now
      this.#work.steps += 1
      const read = this.#named.has(character) ? character : ""
      now = now.next.get(read) ?? this.#step(now, read)
    }
    return now
  }

  #step(states: States, character: string): States {
    this.#work.steps += states.positions.length
    const reached: Array<number> = []
    for (const position of states.positions) {
      const token = this.#tokens[position]
      if (token?.kind === "text" && token.text === character) reached.push(position + 1)
      if (token?.kind === "one" && character !== "/") reached.push(position + 1)
      if (token?.kind === "any" && (token.folders || character !== "/")) reached.push(position)
    }
    const next = this.#closed(reached)
    states.next.set(character, next)
    return next
  }

  /** Returns the states of positions, and of those that need no character. */
  #closed(reached: ReadonlyArray<number>): States {
    const all = new Set(reached)
    for (const position of all) {
      const token = this.#tokens[position]
      if (token?.kind === "any" || token?.kind === "option") all.add(position + 1)
      if (token?.kind === "option") all.add(position + 1 + token.count)
    }
    const positions = [...all].toSorted((one, other) => one - other)
    const key = positions.join()
    const known = this.#known.get(key)
    if (known !== undefined) return known
    this.#size += positions.length + 1
    if (this.#size > MOST_KNOWN) this.#forget(positions.length + 1)
    const isEnd = positions.some((position) => this.#tokens[position]?.kind === "end")
    const states: States = { positions, isEnd, next: new Map() }
    this.#known.set(key, states)
    return states
  }

  #forget(size: number) {
    for (const { next } of this.#known.values()) next.clear()
    this.#known.clear()
    this.#size = size
  }
}

/** Returns a function that tells whether a whole text matches a glob: `*` and `?` do not match `/`, `**` does. */
export const glob = (pattern: string): ((text: string) => boolean) => {
  const automaton = new Automaton([pattern], { steps: 0 })
  return (text) => automaton.after(automaton.begin, text).isEnd
}

/** A path that was matched, with the states after it; no states if it, or a folder above it, matches. */
interface Folder {
  readonly path: string
  readonly states: States | undefined
}

const isAtOrBelow = (path: string, folder: string) =>
  path.startsWith(folder) && (path.length === folder.length || path[folder.length] === "/")

/**
 * Returns a function that tells whether a path matches one of the patterns, or lies in a folder that does. A pattern
 * without `/` is of names at any depth. After a path, another one in the same folder takes only its name.
 */
export const pathPatterns = (
  patterns: ReadonlyArray<string>,
  work: Work = { steps: 0 }
): ((path: string) => boolean) => {
  if (patterns.length === 0) return () => false
  const names = new Automaton(
    patterns.filter((pattern) => !pattern.includes("/")),
    work
  )
  const paths = new Automaton(
    patterns
      .filter((pattern) => pattern.includes("/"))
      .map((pattern) => (pattern.startsWith("/") || pattern.startsWith("**/") ? pattern : `/${pattern}`)),
    work
  )
  const top: Folder = { path: "", states: paths.begin }
  /** The last path and the folders above it, the outermost first. */
  const last: Array<Folder> = []
  const below = ({ path, states }: Folder, name: string): Folder => {
    const own = `${path}/${name}`
    if (states === undefined || names.after(names.begin, name).isEnd) return { path: own, states: undefined }
    const next = paths.after(paths.after(states, "/"), name)
    return { path: own, states: next.isEnd ? undefined : next }
  }
  return (path) => {
    let folder = last.at(-1) ?? top
    while (last.length > 0 && !isAtOrBelow(path, folder.path)) {
      last.pop()
      folder = last.at(-1) ?? top
    }
    for (const name of path.slice(folder.path.length).split("/")) {
      if (name === "") continue
      folder = below(folder, name)
      last.push(folder)
    }
    return folder.states === undefined
  }
}

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

/** Counts the states that matches look at, which is the measure of their work. */
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

type States = ReadonlyArray<number>

/** All patterns at once, as an automaton whose states are positions in their tokens. */
class Automaton {
  readonly begin: States
  readonly #tokens: ReadonlyArray<Token>
  readonly #work: Work
  /** The round in which each state was reached last. */
  readonly #reached: Uint32Array
  #round = 0

  constructor(patterns: ReadonlyArray<string>, work: Work) {
    const begins: Array<number> = []
    const tokens: Array<Token> = []
    for (const pattern of patterns) {
      begins.push(tokens.length)
      for (const token of tokensOf(pattern)) tokens.push(token)
    }
    this.#tokens = tokens
    this.#work = work
    this.#reached = new Uint32Array(tokens.length)
    this.begin = this.#closed(begins)
  }

  /** Returns the states after a text. */
  after(states: States, text: string): States {
    let now = states
    for (const character of text) {
      if (now.length === 0) return now
      const next: Array<number> = []
      this.#work.steps += now.length
      for (const state of now) {
        const token = this.#tokens[state]
        if (token?.kind === "text" && token.text === character) next.push(state + 1)
        if (token?.kind === "one" && character !== "/") next.push(state + 1)
        if (token?.kind === "any" && (token.folders || character !== "/")) next.push(state)
      }
      now = this.#closed(next)
    }
    return now
  }

  isEnd(states: States): boolean {
    return states.some((state) => this.#tokens[state]?.kind === "end")
  }

  /** Returns each state once, with those that need no character. */
  #closed(states: States): States {
    const all: Array<number> = []
    const add = (state: number) => {
      if (this.#reached[state] === this.#round) return
      this.#reached[state] = this.#round
      all.push(state)
    }
    this.#round += 1
    for (const state of states) add(state)
    for (const state of all) {
      const token = this.#tokens[state]
      if (token?.kind === "any" || token?.kind === "option") add(state + 1)
      if (token?.kind === "option") add(state + 1 + token.count)
    }
    return all
  }
}

/** Returns a function that tells whether a whole text matches a glob: `*` and `?` do not match `/`, `**` does. */
export const glob = (pattern: string): ((text: string) => boolean) => {
  const automaton = new Automaton([pattern], { steps: 0 })
  return (text) => automaton.isEnd(automaton.after(automaton.begin, text))
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
    if (states === undefined || names.isEnd(names.after(names.begin, name)))
      return { path: own, states: undefined }
    const next = paths.after(paths.after(states, "/"), name)
    return { path: own, states: paths.isEnd(next) ? undefined : next }
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

/** Patterns of paths and globs of names (spec 10.4). A match takes time in proportion to both lengths. */

type Token =
  | { readonly kind: "text"; readonly text: string }
  /** `?` */
  | { readonly kind: "one" }
  /** `*`, or `**` with `folders` */
  | { readonly kind: "any"; readonly folders: boolean }
  /** The next `count` tokens may be left out. */
  | { readonly kind: "option"; readonly count: number }

const tokensOf = (pattern: string): ReadonlyArray<Token> => {
  const tokens: Array<Token> = []
  for (const [part] of pattern.matchAll(/(?<=^|\/)\*\*\/|\*\*+|[\s\S]/gu)) {
    if (part === "**/") {
      tokens.push({ kind: "option", count: 2 }, { kind: "any", folders: true }, { kind: "text", text: "/" })
    } else if (part.startsWith("*")) tokens.push({ kind: "any", folders: part.length > 1 })
    else tokens.push(part === "?" ? { kind: "one" } : { kind: "text", text: part })
  }
  return tokens
}

/** Returns a function that tells whether a whole text matches a glob: `*` and `?` do not match `/`, `**` does. */
export const glob = (pattern: string): ((text: string) => boolean) => {
  const tokens = tokensOf(pattern)
  /** Adds the states that need no character. */
  const reached = (states: Set<number>) => {
    for (const state of states) {
      const token = tokens[state]
      if (token?.kind === "any" || token?.kind === "option") states.add(state + 1)
      if (token?.kind === "option") states.add(state + 1 + token.count)
    }
    return states
  }
  return (text) => {
    let states = reached(new Set([0]))
    for (const character of text) {
      const next = new Set<number>()
      for (const state of states) {
        const token = tokens[state]
        if (token?.kind === "text" && token.text === character) next.add(state + 1)
        if (token?.kind === "one" && character !== "/") next.add(state + 1)
        if (token?.kind === "any" && (token.folders || character !== "/")) next.add(state)
      }
      if (next.size === 0) return false
      states = reached(next)
    }
    return states.has(tokens.length)
  }
}

/**
 * Returns a function that tells whether a path matches one of the patterns, or lies in a folder that does. A pattern
 * without `/` is of names at any depth.
 */
export const pathPatterns = (patterns: ReadonlyArray<string>): ((path: string) => boolean) => {
  const names = patterns.filter((pattern) => !pattern.includes("/")).map(glob)
  const paths = patterns
    .filter((pattern) => pattern.includes("/"))
    .map((pattern) => glob(pattern.startsWith("/") || pattern.startsWith("**/") ? pattern : `/${pattern}`))
  if (patterns.length === 0) return () => false
  return (path) => {
    const parts = path.split("/").filter((part) => part !== "")
    return parts.some((name, index) => {
      if (names.some((matches) => matches(name))) return true
      const upTo = `/${parts.slice(0, index + 1).join("/")}`
      return paths.some((matches) => matches(upTo))
    })
  }
}

/** A position in a file; both numbers count from 1. */
export interface Position {
  readonly line: number
  readonly column: number
}

/** A position with its file, relative to the definitions folder. */
export interface Origin extends Position {
  readonly file: string
}

export interface Problem extends Origin {
  readonly reason: string
}

const MAX_PROBLEMS = 50
const MAX_TEXT = 300

/** Returns `text` on one line without control characters, cut to `max` characters: it quotes foreign input. */
export const printable = (text: string, max = MAX_TEXT): string => {
  const line = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ")
  return line.length > max ? `${line.slice(0, max)}...` : line
}

/** `survival.yml:3:5: unknown key ...` */
export const renderProblem = (problem: Problem): string =>
  `${printable(problem.file)}:${problem.line}:${problem.column}: ${printable(problem.reason)}`

/** Returns problems in the order of messages: by file and position. */
export const sortProblems = (problems: ReadonlyArray<Problem>): ReadonlyArray<Problem> =>
  [...problems].sort(
    (a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0) || a.line - b.line || a.column - b.column
  )

/** Returns at most 50 lines; the first problem of every file comes before the second of any. */
export const describeProblems = (problems: ReadonlyArray<Problem>): string => {
  const told = new Map<string, number>()
  const ranked = sortProblems(problems).map((problem) => {
    const rank = told.get(problem.file) ?? 0
    told.set(problem.file, rank + 1)
    return { problem, rank }
  })
  const shown = ranked.sort((a, b) => a.rank - b.rank).slice(0, MAX_PROBLEMS)
  const lines = sortProblems(shown.map(({ problem }) => problem)).map(renderProblem)
  const rest = problems.length - lines.length
  return (rest > 0 ? [...lines, `and ${rest} more`] : lines).join("\n")
}

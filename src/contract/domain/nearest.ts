/** Edits (insert, delete, replace, swap two neighbours) that turn `a` into `b`. */
const distance = (a: string, b: string): number => {
  let beforeLast: ReadonlyArray<number> = []
  let last: ReadonlyArray<number> = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row.push(
        Math.min(
          (row[j - 1] ?? j) + 1,
          (last[j] ?? i) + 1,
          (last[j - 1] ?? 0) + (same ? 0 : 1),
          swapped ? (beforeLast[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY
        )
      )
    }
    beforeLast = last
    last = row
  }
  return last[b.length] ?? 0
}

const SHORTEST_BEGINNING = 3

/** Returns the nearest candidate, if any; also by its first word (`memory`) or its beginning (`stat`). */
export const nearest = (word: string, candidates: ReadonlyArray<string>): string | undefined => {
  const heads = word.includes("_")
    ? []
    : candidates.map((candidate) => [candidate, candidate.split("_", 1).join()] as const)
  let best: string | undefined
  let fewest = Math.max(1, Math.floor(word.length / 3)) + 1
  for (const [candidate, text] of [
    ...candidates.map((candidate) => [candidate, candidate] as const),
    ...heads
  ]) {
    if (Math.abs(text.length - word.length) >= fewest) continue
    const edits = distance(word, text)
    if (edits < fewest) {
      best = candidate
      fewest = edits
    }
  }
  if (best !== undefined || word.length < SHORTEST_BEGINNING) return best
  return candidates.find((candidate) => candidate.startsWith(word))
}

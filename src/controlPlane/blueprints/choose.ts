import { Effect } from "effect"
import { type Problem, renderProblem } from "./parse/problem.ts"
import type { Mount } from "./parse/readFolder.ts"
import type { Candidate } from "./sources/Sources.ts"

/** The candidates to put in place, and the rest with the reasons. */
export interface Chosen {
  readonly taken: ReadonlyArray<Candidate>
  readonly refused: ReadonlyArray<{ readonly id: string; readonly problems: ReadonlyArray<Problem> }>
}

const below = (folder: string, { file }: Problem): boolean => file.startsWith(`${folder}/`)

/**
 * Chooses the candidates of a start, so that files that were valid before stay valid: all of them if they cause no new
 * problem together, else one after the other those that cause none. A source without files in place may have invalid
 * files of its own: its valid ones are served.
 *
 * @param problemsWith returns the problems of the folder with these candidates in place
 */
export const choose = Effect.fnUntraced(function* <E, R>(
  candidates: ReadonlyArray<Candidate>,
  problemsWith: (mounts: ReadonlyArray<Mount>) => Effect.Effect<ReadonlyArray<Problem>, E, R>
): Effect.fn.Return<Chosen, E, R> {
  const mountsOf = (some: ReadonlyArray<Candidate>) => some.flatMap(({ mounts }) => mounts)
  const before = yield* problemsWith([])
  const addedTo = (known: ReadonlyArray<Problem>, now: ReadonlyArray<Problem>) => {
    const seen = new Set(known.map(renderProblem))
    return now.filter((problem) => !seen.has(renderProblem(problem)))
  }
  if (addedTo(before, yield* problemsWith(mountsOf(candidates))).length === 0) {
    return { taken: candidates, refused: [] }
  }
  const taken: Array<Candidate> = []
  const refused: Array<Chosen["refused"][number]> = []
  let known = before
  for (const candidate of candidates) {
    const now = yield* problemsWith(mountsOf([...taken, candidate]))
    const { id, newFolder } = candidate
    const problems = addedTo(known, now).filter(
      (problem) => newFolder === undefined || !below(newFolder, problem)
    )
    if (problems.length > 0) refused.push({ id, problems })
    else {
      taken.push(candidate)
      known = now
    }
  }
  return { taken, refused }
})

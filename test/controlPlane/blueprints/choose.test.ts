import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import type { Problem } from "../../../src/controlPlane/blueprints/parse/located.ts"
import type { Mount } from "../../../src/controlPlane/blueprints/parse/readFolder.ts"
import { choose } from "../../../src/controlPlane/blueprints/reloadable.ts"
import type { Candidate } from "../../../src/controlPlane/blueprints/sources/Sources.ts"

/** A source whose new files have `own` problems, break other files or need another source. */
interface Model {
  readonly own: number
  readonly breaksOthers: boolean
  readonly needs: number | undefined
  readonly isNew: boolean
}

const model: fc.Arbitrary<Model> = fc.record({
  own: fc.nat(2),
  breaksOthers: fc.boolean(),
  needs: fc.option(fc.nat(3), { nil: undefined }),
  isNew: fc.boolean()
})

const candidate = ({ isNew }: Model, index: number): Candidate => ({
  id: `s${index}`,
  mounts: [{ at: `s${index}`, directory: `/new/${index}` }],
  newFolder: isNew ? `s${index}` : undefined,
  place: Effect.void
})

const problem = (file: string, reason: string): Problem => ({ file, line: 1, column: 1, reason })

describe("spec 4.4: choice of new files at a start", () => {
  it("no valid file becomes invalid; all new files are taken if they are valid together", () => {
    fc.assert(
      fc.property(fc.array(model, { maxLength: 4 }), fc.nat(2), (models, known) => {
        const problemsOf = (mounts: ReadonlyArray<Mount>): ReadonlyArray<Problem> => [
          ...Array.from({ length: known }, (_, n) => problem("own.yml", `known ${n}`)),
          ...models.flatMap((one, index) => {
            const at = `s${index}`
            if (!mounts.some((mount) => mount.at === at)) return []
            const missingSource =
              one.needs !== undefined && !mounts.some((mount) => mount.at === `s${one.needs}`)
            return [
              ...Array.from({ length: one.own }, (_, n) => problem(`${at}/a.yml`, `bad ${n}`)),
              ...(one.breaksOthers ? [problem("own.yml", `broken by ${at}`)] : []),
              ...(missingSource ? [problem(`${at}/b.yml`, "something is missingSource")] : [])
            ]
          })
        ]
        const all = models.map(candidate)
        const mountsOf = (some: ReadonlyArray<Candidate>) => some.flatMap(({ mounts }) => mounts)
        const { refused, taken } = Effect.runSync(choose(all, (mounts) => Effect.succeed(problemsOf(mounts))))
        assert.deepStrictEqual(
          [...taken.map(({ id }) => id), ...refused.map(({ id }) => id)].toSorted(),
          all.map(({ id }) => id)
        )
        const after = problemsOf(mountsOf(taken)).filter(
          ({ file, reason }) =>
            !reason.startsWith("known") &&
            !taken.some(({ newFolder }) => newFolder !== undefined && file.startsWith(`${newFolder}/`))
        )
        assert.deepStrictEqual(after, [])
        if (problemsOf(mountsOf(all)).length === known) assert.lengthOf(refused, 0)
        for (const { problems } of refused) assert.isNotEmpty(problems)
      })
    )
  })
})

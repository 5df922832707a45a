/** Many transfers of one command: what failed and what was left out is said, and the others go on. */
import { Effect, type Scope } from "effect"
import type { MusterClient } from "../../client/index.ts"
import { legible } from "../../contract/domain/fileTexts.ts"
import type { IoError } from "../../daemon/disk/fsio.ts"
import { CommandError } from "../shared/failures.ts"
import { sizeText } from "../shared/output.ts"
import type { CommandTarget } from "../shared/target.ts"
import { type Expected, type Progress, withProgress } from "./progress.ts"

export type TransferFailure = CommandError | IoError
export type Needs = MusterClient | CommandTarget

export interface Batch {
  readonly say: Progress["say"]
  readonly reading: Progress["reading"]
  /** Shows totals once they are counted, beside the transfers. A count that fails is left out. */
  readonly counted: <E, R>(
    count: Effect.Effect<Expected, E, R>
  ) => Effect.Effect<void, never, R | Scope.Scope>
  /** An unfinished transfer has brought the file. @param size in bytes */
  readonly there: (size: number) => Effect.Effect<void>
  /** An entry is left out by a rule: the command still succeeds. */
  readonly skipped: (path: string, why: string) => Effect.Effect<void>
  readonly failed: (path: string, why: string) => Effect.Effect<void>
  /** Counts a transfer, and says why it fails. @error TransferFailure no other one could succeed either */
  readonly tried: <R>(
    path: string,
    transfer: (progress: Progress) => Effect.Effect<unknown, TransferFailure, R>
  ) => Effect.Effect<void, TransferFailure, R>
}

const HOPELESS: ReadonlyArray<string> = ["ENOSPC", "EDQUOT", "EROFS"]

/** Returns why a transfer fails; a hint that was said before is left out. */
const whyOf = (failure: TransferFailure, said: Set<string>): string => {
  const { message } = failure
  const hint = failure._tag === "CommandError" ? failure.hint : undefined
  if (hint === undefined) return message
  const isSaid = said.has(hint)
  said.add(hint)
  return isSaid ? message.slice(0, -hint.length).trimEnd() : message
}

const endsAll = (failure: TransferFailure): boolean =>
  failure._tag === "IoError" ? HOPELESS.includes(failure.code) : failure.status === "unreachable"

/** Runs transfers. @error CommandError some failed; their reasons are printed */
export const inBatch = <R>(
  verb: string,
  transfers: (batch: Batch) => Effect.Effect<void, TransferFailure, R>
) =>
  withProgress((progress) =>
    Effect.gen(function* () {
      let done = 0
      let there = 0
      let left = 0
      let failures = 0
      let bytes = 0
      const hints = new Set<string>()
      const failed = (path: string, why: string) =>
        Effect.suspend(() => {
          failures++
          return progress.say(`${legible(path)}: ${why}`)
        })
      yield* transfers({
        say: progress.say,
        reading: progress.reading,
        counted: (count) =>
          progress.isShown
            ? count.pipe(
                Effect.tap((all) => Effect.sync(() => progress.expect(all))),
                Effect.ignore,
                Effect.forkScoped,
                Effect.asVoid
              )
            : Effect.void,
        there: (size) =>
          Effect.sync(() => {
            there++
            progress.there(size)
          }),
        skipped: (path, why) =>
          Effect.suspend(() => {
            left++
            return progress.say(`${legible(path)} is left out: ${why}`)
          }),
        failed,
        tried: (path, transfer) => {
          let own = 0
          let name = ""
          const counting = (count: (bytes: number) => void) => (bytes: number) => {
            own += bytes
            count(bytes)
          }
          const begin = (begun: string, total?: number) => {
            name = begun
            progress.begin(begun, total)
          }
          const counted = { ...progress, begin, had: counting(progress.had), moved: counting(progress.moved) }
          const ended = Effect.sync(() => progress.ended(name))
          return Effect.matchEffect(Effect.ensuring(transfer(counted), ended), {
            onSuccess: () =>
              Effect.sync(() => {
                done++
                bytes += own
              }),
            onFailure: (failure) =>
              endsAll(failure) ? Effect.fail(failure) : failed(path, whyOf(failure, hints))
          })
        }
      })
      const files = `${done} file${done === 1 ? "" : "s"}`
      if (there > 0)
        yield* progress.say(there === 1 ? "1 file is there already" : `${there} files are there already`)
      yield* progress.say(
        `${files} ${verb} (${sizeText(bytes)})${left > 0 ? `, ${left} left out` : ""}${failures > 0 ? `, ${failures} failed` : ""}`
      )
      if (failures > 0) return yield* CommandError.failed("")
    })
  )

/** Operations on the command line: how they are shown, and the wait for their end (spec 11). */
import { Console, Effect } from "effect"
import { isOperation, type Operation } from "../../contract/domain/Operation.ts"
import type { BulkOutcomes } from "../../contract/domain/Selector.ts"
import { CommandError } from "./failures.ts"
import { ask, whileReachable } from "./musterClient.ts"
import { type Listing, sizeText, wide } from "./output.ts"
import { note } from "./terminal.ts"

const figure = (unit: "bytes" | "files", count: number): string =>
  unit === "bytes" ? sizeText(count) : String(count)

/** Returns the figures of an operation: `1200 of 4000 files`, `340 MiB`; nothing while they are unknown. */
export const progressOf = ({ progress }: Operation): string => {
  if (progress === undefined) return ""
  const { done, total, unit, waiting } = progress
  if (waiting !== undefined) return `waits: ${waiting}`
  const of = total === 0 ? "" : ` of ${figure(unit, total)}`
  return `${figure(unit, done)}${of}${unit === "files" ? " files" : ""}`
}

const percentOf = ({ progress }: Operation): string =>
  progress === undefined || progress.total === 0
    ? ""
    : `  ${Math.floor((100 * Math.min(progress.done, progress.total)) / progress.total)}%`

const colors = { done: "green", failed: "red", cancelled: "yellow" } as const

export const listing: Listing<Operation> = {
  id: ({ id }) => id,
  columns: {
    id: ({ id }) => id,
    kind: ({ kind }) => kind,
    server: ({ server_id }) => server_id,
    state: ({ state }) =>
      state === "queued" || state === "running" ? state : { text: state, color: colors[state] },
    progress: progressOf,
    begun: ({ created_at }) => created_at,
    ended: wide(({ finished_at }) => finished_at ?? ""),
    reason: ({ reason }) => reason ?? ""
  }
}

const CLEAR = "\r\u001b[K"

/** Waits for the end of an operation, with its figures on a terminal. @error CommandError it is not done */
export const watchOperation = Effect.fnUntraced(
  function* (begun: Operation | string) {
    const { stderr } = process
    const draw = (text: string) => {
      if (stderr.isTTY === true) stderr.write(`${CLEAR}${text}`)
    }
    const onProgress = (now: Operation) =>
      draw(`${now.kind} ${now.state}  ${progressOf(now)}${percentOf(now)}`)
    const end = yield* ask((muster) => muster.operationEnd(begun, { onProgress })).pipe(
      Effect.ensuring(Effect.sync(() => draw("")))
    )
    if (end.state === "done") return end
    const { id, reason, state } = end
    return yield* new CommandError({
      status: "failed",
      message: `operation ${id} ${state === "failed" ? "has failed" : "was cancelled"}: ${reason ?? "no reason is known"}`
    })
  },
  (wait) => whileReachable(wait)
)

/** Says which operation does the work, and waits for its end. */
export const endOf = (begun: Operation) =>
  Effect.andThen(
    note(`Operation ${begun.id} does the work; \`muster operations cancel ${begun.id}\` ends it.`),
    watchOperation(begun)
  )

/** Waits as {@link endOf}, and prints the figures. */
export const waitedFor = Effect.fnUntraced(function* (begun: Operation) {
  const end = yield* endOf(begun)
  const figures = progressOf(end)
  yield* Console.log(`${end.kind} is done${figures === "" ? "" : `: ${figures}`}`)
})

/** Reports outcomes, or waits for the operation that makes many changes. */
export const madeOrWaited = <E, R>(
  made: BulkOutcomes | Operation,
  report: (outcomes: BulkOutcomes) => Effect.Effect<void, E, R>
) => (isOperation(made) ? waitedFor(made) : report(made))

/**
 * How a server holds still while a backup reads its files (spec 12.10). The state has it before the first command, so that
 * the next daemon releases the server if this one is killed.
 */
import { Effect, Schedule } from "effect"
import type { Quiesce } from "../../contract/domain/Quiesce.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import type { ConsoleInputFailed, Run } from "../runtime/Runtime.ts"
import {
  type InstanceState,
  released,
  withoutTurn,
  withStatusReport,
  withTurn
} from "../state/InstanceState.ts"
import type { InstanceAction } from "./powerDecision.ts"
import { refuse } from "./refusals.ts"
import type { Serving } from "./serving.ts"
import { endProcess, type WatchedRun } from "./watchRun.ts"

/** The pause between two attempts to write to a server that does not read, or whose engine is down. */
const RETRY = Schedule.spaced("1 second")

const unsaved = refuse(
  409,
  "the server is not saved: a stop deletes it",
  "Back it up without a stop, or save it first."
)

/** Whether a server that is offline, or about to be, is started next: by a restart, or in its turn. */
const isNext = ({ intent, status, waiting }: InstanceState) =>
  status === "stopping" ? intent?.type === "restart" : status === "offline" && waiting === true

/** The opposite of {@link startAfter}. */
const startHeld = (state: InstanceState): InstanceState => {
  const { intent, run, status } = state
  const held = { ...state, quiesced: { by: "stop" as const, token: run?.token ?? "", after: [] } }
  return status === "stopping" && intent !== null
    ? { ...held, intent: { ...intent, type: "stop" } }
    : withStatusReport(withoutTurn(held), status)
}

/** Begins to hold a server still. One that is neither online nor to be stopped stays as it is. */
export const quiesce = Effect.fnUntraced(function* (it: Serving, how: Quiesce) {
  const { file, live } = it
  const state = file.get()
  const { intent, run, spec, status } = state
  if (how.by === "stop" && spec.definition.save && isNext(state))
    return yield* Effect.asVoid(file.update(startHeld))
  const isFit = status === "running" || (status === "starting" && how.by === "stop")
  if (live === undefined || run === null || intent !== null || !isFit) return
  if (how.by === "stop" && !spec.definition.save) return yield* unsaved
  const quiesced = { by: how.by, token: run.token, after: how.by === "commands" ? how.after : [] }
  yield* file.update((state) => ({ ...state, quiesced }))
  // A pause that is repeated later would freeze the server for good.
  if (how.by === "pause" && !(yield* live.run.pause)) yield* release(it)
  if (how.by === "stop") yield* endProcess(it, "stop", stopTimeoutOf(spec.definition))
})

const write = (run: Run, lines: ReadonlyArray<string>) =>
  Effect.forEach(lines, (line) => run.write(line), { discard: true })

const logNotWritten = ({ message }: ConsoleInputFailed) =>
  Effect.logWarning(`the server does not get the lines that end its quiescence: ${message}; retrying`)

/** Writes the lines that release a server. They may arrive twice, but are never left out while its process runs. */
const writeAfter = Effect.fnUntraced(function* (
  it: Serving,
  { inBackground, run, token }: WatchedRun,
  after: ReadonlyArray<string>
) {
  const done = it.file.update((state) => (state.quiesced?.token === token ? released(state) : state))
  const again = write(run, after).pipe(Effect.retry(RETRY), Effect.andThen(done), Effect.ignore)
  yield* Effect.matchEffect(write(run, after), {
    onSuccess: () => done,
    onFailure: (error) =>
      error.why === "closed" ? done : Effect.andThen(logNotWritten(error), inBackground(again))
  })
})

/** The start of a server that a backup has stopped. A stop that is in progress becomes a restart. */
const startAfter = (state: InstanceState): InstanceState => {
  const { intent, status } = state
  if (status === "stopping" && intent?.type === "stop")
    return { ...released(state), intent: { ...intent, type: "restart" } }
  if (status !== "offline") return released(state)
  return withStatusReport(withTurn(released(state)), status)
}

/** Releases a server that holds still; nothing happens if it does not, or if it has been started anew. */
export const release = Effect.fnUntraced(function* (it: Serving) {
  const { file, live } = it
  const { quiesced, status } = file.get()
  if (quiesced === undefined) return
  if (quiesced.by === "stop") return yield* Effect.asVoid(file.update(startAfter))
  if (live?.token !== quiesced.token) return yield* Effect.asVoid(file.update(released))
  if (quiesced.by === "commands") return yield* writeAfter(it, live, quiesced.after)
  if (status !== "paused") yield* live.run.resume
  yield* file.update(released)
})

/** Lets a caller's power action win: a frozen process would not stop, and a stopped server stays stopped. */
export const yieldTo = Effect.fnUntraced(function* (it: Serving, action: InstanceAction) {
  const { quiesced } = it.file.get()
  if (quiesced?.by === "pause" && action !== "start" && action !== "unpause") yield* release(it)
  if (quiesced?.by === "stop" && (action === "stop" || action === "kill")) yield* it.file.update(released)
})

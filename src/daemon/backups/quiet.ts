/** Holds a server still while a backup reads its files, and says how consistent they are (spec 12.2, 12.10). */
import { Effect, Stream } from "effect"
import type { BackupFigures } from "../../contract/domain/Backup.ts"
import type { Quiesce, QuiesceRule } from "../../contract/domain/Quiesce.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { type AccessError, unprocessable } from "../access/refused.ts"
import type { Line } from "../console/lines.ts"
import { onlineMatcher } from "../console/onlineSignal.ts"
import type { Instance } from "../instances/Instance.ts"
import type { InstanceState } from "../state/InstanceState.ts"

/** Between two looks at the status of the server, in ms. */
const LOOK = 100
/** Seconds that a killed process has to be gone. */
const KILL_TIME = 15

const stateOf = (instance: Instance) => Effect.sync(() => instance.file.get())

const isHeld = ({ quiesced, status }: InstanceState) => quiesced !== undefined && status === "running"

const awaitState = (instance: Instance, is: (state: InstanceState) => boolean) =>
  Effect.repeat(Effect.delay(stateOf(instance), LOOK), { until: is })

/** Writes the commands, and waits for the line of output. Returns why it has not come, if so. */
const sayAndAwait = Effect.fnUntraced(function* (
  instance: Instance,
  { before, timeout, until }: QuiesceRule
) {
  const found = onlineMatcher(until)
  if ("invalid" in found) return `quiesce.until: ${found.invalid}`
  const lines = yield* instance.newLines
  const run = instance.run()
  if (run === undefined || !isHeld(instance.file.get()))
    return "the server ended before the commands of quiesce"
  // A player may choose where the rest of a long line begins.
  const matches = (line: Line) => !line.continues && found.matcher([line]) === true
  const awaited = Stream.runHead(Stream.filter(lines, matches)).pipe(
    Effect.as(undefined),
    Effect.raceFirst(
      Effect.as(
        awaitState(instance, (state) => !isHeld(state)),
        `the server ended, or was paused, before it printed ${JSON.stringify(until)}`
      )
    ),
    Effect.timeoutOrElse({
      duration: timeout * 1000,
      orElse: () =>
        Effect.succeed(
          `the server did not print ${JSON.stringify(until)} within ${timeout} s of the commands of quiesce`
        )
    })
  )
  return yield* Effect.forEach(before, (line) => run.write(line), { discard: true }).pipe(
    Effect.andThen(awaited),
    Effect.catchTag("ConsoleInputFailed", ({ message }) =>
      Effect.succeed(`the commands of quiesce were not written: ${message}`)
    )
  )
}, Effect.scoped)

/** Holds the server still; returns whether it does what was asked. */
const begin = Effect.fnUntraced(function* (instance: Instance, how: Quiesce) {
  yield* instance.quiesce(how)
  const { quiesced, spec } = instance.file.get()
  if (quiesced === undefined) return false
  if (how.by === "pause") return true
  if (how.by === "stop") {
    yield* Effect.timeoutOption(
      awaitState(instance, ({ status }) => !isUp(status)),
      `${stopTimeoutOf(spec.definition) + KILL_TIME} seconds`
    )
    return !isUp(instance.file.get().status)
  }
  const why = yield* sayAndAwait(instance, how)
  if (why === undefined) return true
  if (how.on_failure === "fail")
    return yield* unprocessable(
      why,
      "Correct quiesce of the software, or back up the server with another quiesce."
    )
  yield* Effect.logWarning(`the files of a backup are those of a running server: ${why}`)
  return false
})

/** Returns how consistent files are that were read between two states. */
const consistencyOf = (
  before: InstanceState,
  after: InstanceState,
  isQuiet: boolean
): BackupFigures["consistency"] => {
  // A start, a stop and a pause in between leave reports, which have later sequences.
  if (before.sequence !== after.sequence || before.status !== after.status) return "crash"
  if (!isUp(after.status)) return "stopped"
  if (after.status === "paused") return "paused"
  if (!isQuiet || after.quiesced === undefined) return "crash"
  return after.quiesced.by === "pause" ? "paused" : "quiesced"
}

/** Reads the files of a server while it holds still. The caller releases it afterwards, whatever happens. */
export const whileQuiet = <A>(
  instance: Instance,
  how: Quiesce | undefined,
  read: Effect.Effect<A, AccessError>
) =>
  Effect.gen(function* () {
    const since = yield* elapsedMillis
    const isQuiet = how !== undefined && (yield* begin(instance, how))
    const before = instance.file.get()
    const packed = yield* read
    const consistency = consistencyOf(before, instance.file.get(), isQuiet)
    const lasted = Math.round((yield* elapsedMillis) - since)
    return {
      packed,
      consistency,
      ...(isQuiet && consistency !== "crash" ? { quiesced_ms: lasted } : {})
    }
  })

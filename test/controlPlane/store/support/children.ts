import { resolve } from "node:path"
import { Effect, Stream } from "effect"
import { ChildProcess } from "effect/process"

const fixtures = resolve(import.meta.dirname, "../fixtures")

/** A fixture as a process, which is killed with the scope. */
export const startChild = (fixture: string, ...args: ReadonlyArray<string>) =>
  ChildProcess.make(process.execPath, [resolve(fixtures, fixture), ...args], {
    stdin: "ignore",
    // A group would be killed after its end, too, when its number may be that of another group.
    detached: false,
    killSignal: "SIGKILL"
  })

/** The lines of the process's output. */
export const linesOf = (child: Effect.Success<ReturnType<typeof startChild>>) =>
  child.stdout.pipe(Stream.decodeText(), Stream.splitLines)

/** Runs a fixture to its end and returns its lines. */
export const runChild = (fixture: string, ...args: ReadonlyArray<string>) =>
  Effect.scoped(Effect.flatMap(startChild(fixture, ...args), (child) => Stream.runCollect(linesOf(child))))

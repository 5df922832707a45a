import { Schema } from "effect"
import type { Crash } from "../../contract/domain/ServerEvent.ts"

const Why = Schema.Struct({
  message: Schema.String,
  code: Schema.optionalKey(Schema.String),
  next: Schema.optionalKey(Schema.String)
})
type Why = typeof Why.Type

/** The exit of a process. `code` as in a shell: 128 + n is signal n. */
export const ProcessExit = Schema.Struct({
  code: Schema.Int,
  out_of_memory: Schema.Boolean,
  /** Whether there was no process, for example without an image. The console has the reason, and it is no crash. */
  never_began: Schema.optionalKey(Schema.Literal(true)),
  /** Whether it ended with its machine or engine; it is no crash, and the code says nothing. */
  with_host: Schema.optionalKey(Schema.Literal(true)),
  /** The reason, if it is known. */
  why: Schema.optionalKey(Why)
})
export type ProcessExit = typeof ProcessExit.Type

type Reason = Pick<Why, "message"> & { readonly [Key in "code" | "next"]?: string | undefined }

/** Returns the fields of an error that are kept with the exit, without those that are unset. */
export const whyOf = ({ code, message, next }: Reason): Why => ({
  message,
  ...(code === undefined ? {} : { code }),
  ...(next === undefined ? {} : { next })
})

/** The exit code after a kill from outside that was not recorded. */
export const KILLED = 137

/** The exit of a run that was killed, that never started, or that left nothing. */
export const killedExit: ProcessExit = { code: KILLED, out_of_memory: false }

const signalNames: Readonly<Record<number, string>> = {
  1: "hangup",
  2: "interrupt",
  3: "quit",
  4: "illegal instruction",
  5: "trace/breakpoint trap",
  6: "aborted",
  7: "bus error",
  8: "floating point exception",
  9: "killed",
  10: "user defined signal 1",
  11: "segmentation fault",
  12: "user defined signal 2",
  13: "broken pipe",
  14: "alarm clock",
  15: "terminated",
  31: "bad system call"
}

/** The signals of `stop-command: "^..."`; `^C` is the interrupt of a terminal. */
const stopSignals = {
  C: "SIGINT",
  SIGINT: "SIGINT",
  SIGTERM: "SIGTERM",
  SIGQUIT: "SIGQUIT",
  SIGHUP: "SIGHUP",
  SIGKILL: "SIGKILL",
  SIGUSR1: "SIGUSR1",
  SIGUSR2: "SIGUSR2"
} as const

export type StopSignal = (typeof stopSignals)[keyof typeof stopSignals]

/** Whether a stop command is the interrupt key, which a terminal turns into a signal. */
export const isInterrupt = (command: string): boolean => command.toUpperCase() === "^C"

/** Returns how to stop a software: a line for its console, or a signal. An empty or unknown `^...` is SIGTERM. */
export const stopMethod = (command: string): { readonly signal: StopSignal } | { readonly line: string } => {
  if (command === "") return { signal: "SIGTERM" }
  if (!command.startsWith("^")) return { line: command }
  const name = command.slice(1).toUpperCase()
  const key = name === "C" || name.startsWith("SIG") ? name : `SIG${name}`
  const known = Object.entries(stopSignals).find(([candidate]) => candidate === key)
  return { signal: known?.[1] ?? "SIGTERM" }
}

/** Returns the crash event of an unexpected end (spec 3.18). */
export const crashOf = (exit: ProcessExit, timed_out: boolean, at: Date): Crash => {
  const timestamp = at.toISOString()
  if (timed_out) return { reason: "start timed out", exit_code: exit.code, timestamp }
  if (exit.out_of_memory) return { reason: "out of memory", exit_code: 137, timestamp }
  const name = exit.code > 128 ? signalNames[exit.code - 128] : undefined
  return {
    reason: name === undefined ? `exit code ${exit.code}` : `signal: ${name}`,
    exit_code: exit.code,
    timestamp
  }
}
